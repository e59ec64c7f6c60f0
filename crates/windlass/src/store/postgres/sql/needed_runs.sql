-- Those of some runs that others need, or that have something to be delivered, and why.
--
-- $1 uuid[]: the runs, which the caller has locked
select c.child_id as run_id, 'child' as why
from windlass.children c
where c.child_id = any($1)
union
select d.run_id, 'dead'
from windlass.dead_letters d
where d.run_id = any($1)
union
select p.run_id, 'lane'
from windlass.lane_places p
where p.run_id = any($1)
union
select s.run_id, 'staged'
from windlass.staged s
where s.run_id = any($1)
union
select s.child_id, 'staged'
from windlass.staged s
where s.child_id = any($1);
