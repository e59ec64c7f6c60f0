-- Locks runs, in the order of their ids, and waits for those that others have.
--
-- $1 uuid[]: the runs
select r.id, r.definition_id, r.tenant, r.state, r.round, r.open_tasks, r.failed_tasks, r.priority,
    r.lane_keys::text as lane_keys
from windlass.runs r
where r.id = any($1)
order by r.id
for no key update;
