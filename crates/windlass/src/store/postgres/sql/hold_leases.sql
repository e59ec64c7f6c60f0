-- Which tasks are leased with these fences. The leases are locked for key share: whoever takes
-- a task away comes before or after.
--
-- $1 uuid[], $2 int[], $3 bigint[]: the tasks, each once and sorted, and their fences
select l.run_id, l.idx, l.fence
from unnest($1::uuid[], $2::integer[], $3::bigint[]) as k (run_id, idx, fence)
cross join lateral (
    select x.run_id, x.idx, x.fence
    from windlass.leases x
    where x.run_id = k.run_id and x.idx = k.idx and x.fence = k.fence
    for key share
) l;
