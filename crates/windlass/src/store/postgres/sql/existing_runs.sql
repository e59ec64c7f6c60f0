-- Runs that are there already, by their ids or by their keys.
--
-- $1 uuid[]: ids   $2 text[]: tenants   $3 text[]: workflows   $4 text[]: keys, null for none
select k.n, e.is_named, e.id, e.tenant, e.workflow, e.key, e.input
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
    with ordinality as k (id, tenant, workflow, key, n)
cross join lateral (
    select true as is_named, r.id, r.tenant, r.workflow, r.key, r.input::text
    from windlass.runs r where r.id = k.id
    union all
    select false, r.id, r.tenant, r.workflow, r.key, r.input::text
    from windlass.runs r
    where r.tenant = k.tenant and r.workflow = k.workflow and r.key = k.key
) e;
