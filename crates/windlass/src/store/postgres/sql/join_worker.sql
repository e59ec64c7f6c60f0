-- Begins a worker's life, unless it has begun.
--
-- $1 uuid: the worker   $2 text: its name   $3 int: slots   $4 bigint: its lease in microseconds
-- $5 timestamptz: the end of the lease   $6 timestamptz: the time
with born as (
    insert into windlass.workers (id, name, slots, lease, joined_at)
    values ($1, $2, $3, $4 * interval '1 microsecond', $6)
    on conflict (id) do nothing
    returning id
)
insert into windlass.pulses (worker_id, number, lease_until, last_claim, oldest_claim)
select born.id, 1, $5, 0, 0 from born;
