-- Locks those lanes that nobody else has locked, until the end of the transaction, whatever
-- else is locked: nothing is waited for. Answers their numbers.
--
-- $1 int[]: numbers of lanes
select n
from unnest($1::integer[]) as n
where pg_try_advisory_xact_lock(1464421957, n);
