-- tables.walls: tenants are kept apart by the database as well
--
-- Looks at the policies that `windlass migrate --grants` makes, and whether this role can take on the
-- one that they are for. What a role sees behind them is checked when a server starts with it.
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
    'there is no second wall between tenants' as problem,
    'whoever acts for one tenant is kept from the others by the server alone' as cause,
    'run what `windlass migrate --grants` prints, and serve with --api-role' as remedy
where not exists (select from walls)
union all
select
    'critical',
    format('row level security of windlass.%s is off', w.relname),
    'its policies keep nobody from anything',
    format('alter table windlass.%I enable row level security', w.relname)
from walls w
where not w.relrowsecurity
union all
select
    'notice',
    format('role %I cannot take on role %I', current_user, w.rolname),
    'what this role reads for one tenant is behind no second wall',
    format('grant %I to %I', w.rolname, current_user)
from (select distinct w.role, w.rolname from walls w) w
where not pg_has_role(current_user, w.role, 'member')
