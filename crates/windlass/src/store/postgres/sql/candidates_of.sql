-- The first places of one tenant in levels, to choose by: nothing is locked.
--
-- It goes by the index of a tenant's own tasks, and so passes nobody else's, however many there are.
--
-- $1 int[]: levels   $2 bigint[]: from which tag on to look in each   $3 int: the tenant
-- $4 bigint: how many of each
select k.level_id, q.run_id, q.idx, q.route_id, q.tag, q.seq
from unnest($1::integer[], $2::bigint[]) as k (level_id, floor)
cross join lateral (
    select r.run_id, r.idx, r.route_id, r.tag, r.seq
    from windlass.ready r
    where r.level_id = k.level_id and r.tenant_id = $3 and r.tag >= k.floor
    order by r.tag, r.seq
    limit $4
) q;
