-- Runs that are there already, by their ids or by their keys, and runs that are gone and whose
-- keys are kept.
--
-- $1 uuid[]: ids   $2 text[]: tenants   $3 text[]: workflows   $4 text[]: keys, null for none
-- $5 timestamptz: the time
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
    union all
    select false, g.run_id, g.tenant, g.workflow, g.key, g.input::text
    from (
        select x.run_id, x.tenant, x.workflow, x.key, x.input, x.expires_at
        from windlass.kept_keys x
        where x.tenant = k.tenant and x.workflow = k.workflow and x.key = k.key
        offset 0
    ) g
    where g.expires_at > $5
) e;
