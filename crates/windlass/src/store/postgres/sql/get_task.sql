-- One task of a run.
--
-- $1 uuid: the run   $2 text: the name of the task
select s.idx, s.name, s.state, s.fence, s.attempt, s.pending_parents, s.available_at,
    s.worker_id, s.output::text, s.failure::text, s.progress::text
from windlass.task_states s
where s.run_id = $1 and s.name = $2;
