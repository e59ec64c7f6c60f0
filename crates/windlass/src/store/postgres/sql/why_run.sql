-- A run that someone asks about, and the time.
--
-- $1 uuid: the run
select r.definition_id, r.workflow, r.version, r.tenant, r.state, r.open_tasks, r.ended_at,
    r.metadata ->> 'traceparent' as traceparent, r.metadata ->> 'tracestate' as tracestate
from windlass.runs r
where r.id = $1;
