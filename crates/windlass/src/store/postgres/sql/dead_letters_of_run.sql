-- The dead letters of a run.
--
-- $1 uuid: the run
select d.run_id, d.idx, d.round, d.version, d.attempts, d.failed_at, d.tenant, d.workflow, d.task,
    d.queue, d.failure::text as failure, d.lanes::text as lanes
from windlass.dead_letters d
where d.run_id = $1;
