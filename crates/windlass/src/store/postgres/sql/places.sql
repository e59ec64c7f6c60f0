-- The places that tasks have in lanes.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select k.run_id, k.idx, p.limit_id, p.seq, p.superseded
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
cross join lateral (
    select p.limit_id, p.seq, p.superseded
    from windlass.lane_places p
    where p.run_id = k.run_id and p.idx = k.idx
    offset 0
) p;
