-- How many schedules a tenant has.
--
-- $1 text: the tenant
select count(*) from windlass.schedules s where s.tenant = $1;
