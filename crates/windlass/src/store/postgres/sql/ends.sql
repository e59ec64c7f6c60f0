-- How tasks ended.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select t.run_id, t.idx, t.state, o.output::text
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
join windlass.tasks t on t.run_id = k.run_id and t.idx = k.idx
left join windlass.outputs o on o.run_id = k.run_id and o.idx = k.idx;
