-- tables.walls: row-level security isolates tenants
--
-- Checks the policies that `windlass migrate --grants` creates, and whether this role can become the role
-- that they restrict. A server checks at its start what that role can see.
with walls as (
    select c.relname, c.relrowsecurity, r.oid as role, r.rolname
    from pg_policy y
    join pg_class c on c.oid = y.polrelid
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'windlass'
    join pg_roles r on r.oid = any(y.polroles)
    where y.polname = 'windlass_api'
)
select
    'notice' as severity,
    'row-level security is not set up' as problem,
    'only the server isolates tenants from each other' as cause,
    'run what `windlass migrate --grants` prints, and serve with --api-role' as remedy
where not exists (select from walls)
union all
select
    'critical',
    format('row-level security of windlass.%s is disabled', w.relname),
    'its policies have no effect',
    format('alter table windlass.%I enable row level security', w.relname)
from walls w
where not w.relrowsecurity
union all
select
    'notice',
    format('role %I cannot become role %I', current_user, w.rolname),
    'row-level security does not restrict what this role reads for a tenant',
    format('grant %I to %I', w.rolname, current_user)
from (select distinct w.role, w.rolname from walls w) w
where not pg_has_role(current_user, w.role, 'member')
