-- Writes tasks that have no row yet.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked   $3 text[]: states
-- $4 bigint[]: fences   $5 int[]: attempts   $6, $7, $8 int[]: parents pending, failed, skipped,
-- null for 0   $9 bigint[], $10 text[]: the newest answers, the fence null if it is the task's
-- $11 text[]: failures, null for none   $12 text[]: outputs, null for none
insert into windlass.task_rows (
    run_id, idx, state, fence, attempt, pending_parents, failed_parents, skipped_parents,
    answered_fence, answered_verb, failure, output
)
select
    k.run_id, k.idx, k.state, k.fence, k.attempt, k.pending_parents, k.failed_parents,
    k.skipped_parents, k.answered_fence, k.answered_verb, k.failure::json, k.output::json
from unnest(
    $1::uuid[], $2::integer[], $3::text[], $4::bigint[], $5::integer[], $6::integer[],
    $7::integer[], $8::integer[], $9::bigint[], $10::text[], $11::text[], $12::text[]
) as k (
    run_id, idx, state, fence, attempt, pending_parents, failed_parents, skipped_parents,
    answered_fence, answered_verb, failure, output
);
