-- Locks leases that are to be ended, and leaves out those that a transaction of a user's counts
-- on: a sweep comes again, and must not wait for what others write.
--
-- $1 uuid[], $2 int[], $3 bigint[]: the tasks, whose runs the caller has locked, each once and
-- sorted, and their fences
select l.run_id, l.idx
from unnest($1::uuid[], $2::integer[], $3::bigint[]) as k (run_id, idx, fence)
cross join lateral (
    select x.run_id, x.idx
    from windlass.leases x
    where x.run_id = k.run_id and x.idx = k.idx and x.fence = k.fence
    for update skip locked
) l;
