-- Writes down tasks that failed for good.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked   $3 int[]: rounds
-- $4 int[]: versions   $5 int[]: attempts   $6 timestamptz: when   $7 text[]: tenants
-- $8 text[]: workflows   $9 text[]: names of the tasks   $10 text[]: queues
-- $11 text[]: codes of the failures   $12 text[]: failures   $13 text[]: lanes, null for none
insert into windlass.dead_letters (
    run_id, idx, round, version, attempts, failed_at, tenant, workflow, task, queue, reason,
    failure, lanes
)
select
    k.run_id, k.idx, k.round, k.version, k.attempts, $6, k.tenant, k.workflow, k.task, k.queue,
    k.reason, k.failure::json, k.lanes::json
from unnest(
    $1::uuid[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $7::text[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[]
) as k (
    run_id, idx, round, version, attempts, tenant, workflow, task, queue, reason, failure, lanes
)
on conflict (run_id, idx) do update
set round = excluded.round, version = excluded.version, attempts = excluded.attempts,
    failed_at = excluded.failed_at, tenant = excluded.tenant, workflow = excluded.workflow,
    task = excluded.task, queue = excluded.queue, reason = excluded.reason,
    failure = excluded.failure, lanes = excluded.lanes;
