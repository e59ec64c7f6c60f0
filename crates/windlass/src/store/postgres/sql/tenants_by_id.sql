-- The names of tenants.
--
-- $1 int[]: numbers
select t.id, t.name from windlass.tenants t where t.id = any($1);
