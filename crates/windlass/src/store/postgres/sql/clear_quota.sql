-- Deletes a quota; a row if there was one.
--
-- $1 text: the tenant, empty for all that have none
delete from windlass.quotas where tenant = $1 returning tenant;
