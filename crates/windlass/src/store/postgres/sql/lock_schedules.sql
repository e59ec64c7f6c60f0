-- Lets nobody else make a schedule until the transaction ends: how many there are is counted behind
-- it. Whoever has it locks nothing else that others wait for.
select pg_advisory_xact_lock(1464421957, hashtext('windlass.schedules'));
