-- Those of some tasks that are dead letters.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked
select d.run_id, d.idx
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
cross join lateral (
    select x.run_id, x.idx
    from windlass.dead_letters x
    where x.run_id = k.run_id and x.idx = k.idx
    offset 0
) d;
