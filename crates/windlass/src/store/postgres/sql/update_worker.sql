-- Writes a worker.
--
-- $1 uuid: the worker, which the caller has locked   $2 timestamptz: the end of its lease
-- $3 bigint: its newest claim   $4 bigint: the oldest claim that it may hold tasks of
-- $5 text: its state
update windlass.workers
set lease_until = $2, last_claim = $3, oldest_claim = $4, state = $5
where id = $1;
