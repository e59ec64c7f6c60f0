-- The first tasks of a run that failed.
--
-- $1 uuid: the run   $2 bigint: how many
select t.idx
from windlass.task_rows t
where t.run_id = $1 and t.state = 'failed'
order by t.idx
limit $2;
