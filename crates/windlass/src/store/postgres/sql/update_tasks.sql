-- Writes tasks that have a row.
--
-- It writes by physical place, which cannot turn into a scan of the table; nobody else
-- writes tasks of locked runs.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked   $3 text[]: states
-- $4 bigint[]: fences   $5 int[]: attempts   $6, $7, $8 int[]: parents pending, failed, skipped,
-- null for 0   $9 bigint[], $10 text[]: the newest answers, the fence null if it is the task's
-- $11 text[]: failures, null for none   $12 text[]: outputs, null for none
update windlass.task_rows t
set state = k.state,
    fence = k.fence,
    attempt = k.attempt,
    pending_parents = k.pending_parents,
    failed_parents = k.failed_parents,
    skipped_parents = k.skipped_parents,
    answered_fence = k.answered_fence,
    answered_verb = k.answered_verb,
    failure = k.failure::json,
    output = k.output::json
from unnest(
    $1::uuid[], $2::integer[], $3::text[], $4::bigint[], $5::integer[], $6::integer[],
    $7::integer[], $8::integer[], $9::bigint[], $10::text[], $11::text[],
    $12::text[]
) as k (
    run_id, idx, state, fence, attempt, pending_parents, failed_parents, skipped_parents,
    answered_fence, answered_verb, failure, output
)
cross join lateral (
    select x.ctid as place
    from windlass.task_rows x
    where x.run_id = k.run_id and x.idx = k.idx
    offset 0
) p
where t.ctid = p.place;
