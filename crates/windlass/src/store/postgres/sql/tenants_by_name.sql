-- The numbers of tenants.
--
-- $1 text[]: names
select t.id, t.name from windlass.tenants t where t.name = any($1);
