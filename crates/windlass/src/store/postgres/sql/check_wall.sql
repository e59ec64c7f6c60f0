-- What is wrong with the role behind which tenants read, if something is. Reads catalogs only.
--
-- $1 text: the role   $2 text[]: the tables of which it sees one tenant's rows   $3 text[]: the
-- tables that it sees whole   $4 text[]: the views through which it reads
with api as (
    select r.oid, r.rolname, r.rolsuper or r.rolbypassrls as is_free from pg_roles r where r.rolname = $1
),
relations as (
    select c.oid, c.relname, c.relkind, c.relrowsecurity, c.relowner,
        coalesce('security_invoker=true' = any(c.reloptions), false) as is_invoker,
        has_table_privilege(a.oid, c.oid, 'select') as is_seen,
        has_table_privilege(a.oid, c.oid, 'insert')
            or has_table_privilege(a.oid, c.oid, 'update')
            or has_table_privilege(a.oid, c.oid, 'delete')
            or has_table_privilege(a.oid, c.oid, 'truncate') as is_written,
        pg_has_role(a.oid, c.relowner, 'member') as is_owned
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'windlass'
    cross join api a
    where c.relkind in ('r', 'p', 'v', 'm')
)
select p.problem
from (
    select 0 as rank, 'it does not exist' as problem where not exists (select from api)
    union all
    select 1, 'it is a superuser or passes row level security by' from api a where a.is_free
    union all
    select 2, 'it may act as the owner of windlass.' || r.relname from relations r where r.is_owned
    union all
    select 3, 'it may write windlass.' || r.relname from relations r where r.is_written
    union all
    select 4, 'it sees windlass.' || r.relname || ' whole'
    from relations r
    where r.is_seen and not (
        r.relkind in ('r', 'p') and r.relrowsecurity and r.relname = any($2::text[])
        or r.relkind in ('r', 'p') and r.relname = any($3::text[])
        or r.relkind = 'v' and r.is_invoker and r.relname = any($4::text[])
    )
    union all
    select 5, 'windlass.' || r.relname || ' has no policy for it'
    from relations r
    where r.relname = any($2::text[])
        and not exists (
            select from pg_policy y
            cross join api a
            where y.polrelid = r.oid and y.polroles = array[a.oid] and y.polcmd = 'r'
        )
    union all
    select 6, 'it cannot read windlass.' || r.relname
    from relations r
    where not r.is_seen and r.relname = any($2::text[] || $3::text[] || $4::text[])
) p
order by p.rank, p.problem
limit 1;
