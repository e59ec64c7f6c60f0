-- Which of these tasks has a row.
--
-- $1 uuid[]: runs   $2 int[]: indices of tasks
select t.run_id
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
join windlass.task_rows t on t.run_id = k.run_id and t.idx = k.idx
order by t.run_id
limit 1;
