-- Writes history, in the order given.
--
-- $1 uuid[]: runs   $2 timestamptz: the time   $3 text[]: what happened to them, an event a line
insert into windlass.history (run_id, at, lines)
select k.run_id, $2, k.lines
from unnest($1::uuid[], $3::text[]) with ordinality as k (run_id, lines, n)
order by k.n;
