-- The first places of routes, to choose by: nothing is locked.
--
-- $1 int[]: routes   $2 bigint[]: from which tag on to look in each   $3 bigint: how many of each
select k.route_id, q.tag, q.seq
from unnest($1::integer[], $2::bigint[]) as k (route_id, floor)
cross join lateral (
    select r.tag, r.seq
    from windlass.ready r
    where r.route_id = k.route_id and r.tag >= k.floor
    order by r.tag, r.seq
    limit $3
) q;
