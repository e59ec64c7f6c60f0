-- The tasks of a run, in the order of their indices.
--
-- $1 uuid: the run   $2 int: behind which   $3 bigint: how many
select s.idx, s.name, s.state, s.fence, s.attempt, s.pending_parents, s.available_at,
    s.worker_id, s.output::text, s.failure::text, s.progress::text
from windlass.task_states s
where s.run_id = $1 and s.idx > $2
order by s.idx
limit $3;
