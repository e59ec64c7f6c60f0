-- Who is in lanes in which newcomers take the place of the oldest, and is not about to be
-- cancelled. The caller has locked the lanes.
--
-- $1 int[], $2 int[], $3 text[]: the lanes, by limit, tenant and key
select k.n, p.run_id, p.idx, p.seq
from unnest($1::integer[], $2::integer[], $3::text[]) with ordinality
    as k (limit_id, tenant_id, key, n)
cross join lateral (
    select p.run_id, p.idx, p.seq
    from windlass.lane_places p
    where p.limit_id = k.limit_id and p.tenant_id = k.tenant_id and p.key = k.key
        and p.is_rival and p.superseded is null
    order by p.seq
    limit 1000
) p
order by k.n, p.seq;
