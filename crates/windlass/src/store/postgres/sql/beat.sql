-- Replaces the last sign of life of a worker.
--
-- $1 uuid: the worker, which the caller has locked   $2 bigint: the number of the last one
-- $3 timestamptz: the end of its lease   $4 bigint: its newest claim
-- $5 bigint: the oldest claim that it may hold tasks of
with last as (
    delete from windlass.pulses where worker_id = $1 and number = $2
)
insert into windlass.pulses (worker_id, number, lease_until, last_claim, oldest_claim)
values ($1, $2 + 1, $3, $4, $5);
