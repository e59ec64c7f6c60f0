-- Notes for the next sweep that runs have ended which others may wait for, or were retried.
--
-- $1 uuid[]: the runs
insert into windlass.staged (run_id, child_id, purpose)
select c.run_id, c.child_id, 'child_ended'
from windlass.children c
where c.child_id = any($1);
