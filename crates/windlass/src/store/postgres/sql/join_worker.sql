-- Begins a worker's life, unless it has begun.
--
-- $1 uuid: the worker   $2 text: its name   $3 int: slots   $4 bigint: its lease in microseconds
-- $5 timestamptz: the end of the lease   $6 timestamptz: the time
insert into windlass.workers (id, name, slots, lease, lease_until, joined_at)
values ($1, $2, $3, $4 * interval '1 microsecond', $5, $6)
on conflict (id) do nothing;
