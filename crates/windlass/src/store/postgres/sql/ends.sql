-- How tasks ended.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select t.run_id, t.idx, t.state, o.output
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
cross join lateral (
    select t.run_id, t.idx, t.state
    from windlass.tasks t
    where t.run_id = k.run_id and t.idx = k.idx
    offset 0
) t
left join lateral (
    select o.output::text
    from windlass.outputs o
    where o.run_id = k.run_id and o.idx = k.idx
    offset 0
) o on true;
