-- A run in the archive.
--
-- $1 uuid: the run
select a.id, a.version, a.created_at, a.ended_at, a.archived_at, a.workflow, a.tenant, a.state,
    a.body::text as body
from windlass.archived_runs a
where a.id = $1;
