-- Locks runs, in the order of their ids, and leaves out those that others have: a sweep
-- comes again and must not stop at a run that someone holds.
--
-- $1 uuid[]: the runs
select r.id, r.definition_id, r.tenant, r.state, r.round, r.open_tasks, r.failed_tasks, r.priority,
    r.lane_keys::text as lane_keys
from windlass.runs r
where r.id = any($1)
order by r.id
for no key update skip locked;
