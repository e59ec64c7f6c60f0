-- Locks lanes until the end of the transaction. The caller has sorted the numbers, and has no
-- lock of a lane with a larger one.
--
-- $1 int[]: numbers of lanes
select pg_advisory_xact_lock(1464421957, n) from unnest($1::integer[]) as n;
