-- Lanes as they are, of those in which someone is. The caller has locked them.
--
-- $1 int[], $2 int[], $3 text[]: the lanes, by limit, tenant and key
select k.n, l.number, l.held, l.served, l.last
from unnest($1::integer[], $2::integer[], $3::text[]) with ordinality
    as k (limit_id, tenant_id, key, n)
cross join lateral (
    select l.number, l.held, l.served, l.last
    from windlass.lanes l
    where l.limit_id = k.limit_id and l.tenant_id = k.tenant_id and l.key = k.key
    order by l.number desc
    limit 1
) l
order by k.n;
