-- What failed in runs, and why.
--
-- $1 uuid[]: the runs
select t.run_id, t.idx, t.failure::text
from windlass.task_rows t
where t.run_id = any($1) and t.state = 'failed'
order by t.run_id, t.idx;
