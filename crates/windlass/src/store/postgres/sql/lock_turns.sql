-- Locks the turns of tenants in levels until the end of the transaction, so that two
-- transactions do not give the same tag twice. The caller has sorted the numbers.
--
-- $1 int[]: numbers of turns
select pg_advisory_xact_lock(1464421956, n) from unnest($1::integer[]) as n;
