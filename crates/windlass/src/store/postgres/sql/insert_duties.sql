-- Makes duties of programs known that are not, due at once.
--
-- $1 text[]: the names   $2 bigint[]: the interval of each in microseconds   $3 timestamptz: now
insert into windlass.duties (name, every_micros, next_at)
select t.name, t.every_micros, $3
from unnest($1, $2) t (name, every_micros)
order by t.name
on conflict (name) do nothing;
