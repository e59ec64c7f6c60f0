-- The children of runs that are not known to have ended.
--
-- $1 uuid[]: the runs   $2 bigint: how many
select c.run_id, c.child_id
from windlass.children c
where c.run_id = any($1) and c.has_ended is null
order by c.run_id, c.idx, c.call, c.place
limit $2;
