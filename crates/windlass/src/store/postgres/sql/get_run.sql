-- One run.
--
-- $1 uuid: the run
select r.id, r.workflow, r.version, r.tenant, r.state, r.round, r.open_tasks, r.priority,
    r.created_at, r.ended_at, r.key, r.metadata::text, r.input::text
from windlass.runs r
where r.id = $1;
