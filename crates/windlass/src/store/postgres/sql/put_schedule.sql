-- Makes a schedule, or makes the one of this name another, whose row the transaction has locked.
-- Answers its number; two that make the same at once wait for each other, and the second fails
-- without a row and is repeated.
--
-- The number is random, of 52 bits: the ids of runs follow from it, and whoever could guess them could
-- take them before.
--
-- $1 text, $2 text: tenant and name   $3 text, $4 integer, $5 smallint: workflow, version, priority
-- $6 text: the state   $7 text: the owner, if any   $8 text: the cadence as JSON   $9 text, $10
-- text: what is done with missed times and with overlap   $11 bigint, $12 bigint: jitter and grace
-- in microseconds   $13, $14 timestamptz: start and end   $15 timestamptz: when it was made   $16,
-- $17, $18, $19 timestamptz: the next time, when that is served, the last time, the time that waits
-- $20 text: the input as JSON
insert into windlass.schedules (
    id, tenant, name, workflow, version, priority, state, owner, cadence, missed, overlap,
    jitter_micros, grace_micros, starts_at, ends_at, created_at, next_at, due_at, last_at, queued_at,
    input
)
overriding system value
values (
    ('x' || left(gen_random_uuid()::text, 8) || right(gen_random_uuid()::text, 5))::bit(52)::bigint + 1,
    $1, $2, $3, $4, $5, $6, $7, $8::text::json, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
    $19, $20::text::json
)
on conflict (tenant, name) do update
set workflow = excluded.workflow, version = excluded.version, priority = excluded.priority,
    state = excluded.state, owner = excluded.owner, cadence = excluded.cadence,
    missed = excluded.missed, overlap = excluded.overlap, jitter_micros = excluded.jitter_micros,
    grace_micros = excluded.grace_micros, starts_at = excluded.starts_at,
    ends_at = excluded.ends_at, next_at = excluded.next_at, due_at = excluded.due_at,
    last_at = excluded.last_at, queued_at = excluded.queued_at, input = excluded.input
where schedules.created_at = excluded.created_at
returning id;
