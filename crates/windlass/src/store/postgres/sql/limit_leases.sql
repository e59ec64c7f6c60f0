-- Notes when leases end whatever their worker says.
--
-- It updates by physical place, which cannot turn into a scan of the table.
--
-- $1 uuid[], $2 int[]: the tasks, which this transaction has leased   $3 timestamptz[]: the times
update windlass.leases l
set take_back_at = p.take_back_at
from (
    select x.place, k.take_back_at
    from unnest($1::uuid[], $2::integer[], $3::timestamptz[]) as k (run_id, idx, take_back_at)
    cross join lateral (
        select y.ctid as place
        from windlass.leases y
        where y.run_id = k.run_id and y.idx = k.idx
        offset 0
    ) x
) p
where l.ctid = p.place;
