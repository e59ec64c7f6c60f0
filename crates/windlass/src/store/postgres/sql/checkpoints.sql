-- The checkpoints of tasks that have some.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select k.run_id, k.idx, c.value::text as value
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
cross join lateral (
    select x.value
    from windlass.checkpoints x
    where x.run_id = k.run_id and x.idx = k.idx
    offset 0
) c;
