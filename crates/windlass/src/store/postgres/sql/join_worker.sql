-- Begins a worker's life, unless it has begun.
--
-- $1 uuid: the worker   $2 text: its name   $3 int: slots   $4 bigint: its lease in microseconds
-- $5 timestamptz: the end of the lease   $6 timestamptz: the time
-- $7 text: host   $8 bigint: process   $9 text: version   $10 text[]: queues
-- $11 text[], $12 int[]: workflows and their versions   $13 text: metadata as JSON
with born as (
    insert into windlass.workers (id, name, slots, lease, joined_at, host, pid, version, queues,
        workflows, versions, metadata)
    values ($1, $2, $3, $4 * interval '1 microsecond', $6, $7, $8, $9, $10, $11, $12, $13::jsonb)
    on conflict (id) do nothing
    returning id
)
insert into windlass.pulses (worker_id, number, lease_until, last_claim, oldest_claim)
select born.id, 1, $5, 0, 0 from born;
