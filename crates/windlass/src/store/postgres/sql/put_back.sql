-- Puts tasks back where they stood in their queues.
--
-- $1 uuid[], $2 int[]: the tasks   $3 int[]: definitions   $4 int[]: lanes
-- $5 int[]: levels   $6 int[]: tenants   $7 bigint[]: tags   $8 bigint[]: ages
-- $9 bigint[]: fences   $10 int[]: attempts   $11 int[]: the most attempts
-- $12 bigint[], $13 text[]: the newest answers
insert into windlass.ready (
    run_id, idx, definition_id, lane_id, level_id, tenant_id, tag, seq,
    fence, attempt, max_attempts, answered_fence, answered_verb
)
select k.run_id, k.idx, k.definition_id, k.lane_id, k.level_id, k.tenant_id, k.tag, k.seq,
    k.fence, k.attempt, k.max_attempts, k.answered_fence, k.answered_verb
from unnest(
    $1::uuid[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[],
    $7::bigint[], $8::bigint[], $9::bigint[], $10::integer[], $11::integer[], $12::bigint[],
    $13::text[]
) as k (
    run_id, idx, definition_id, lane_id, level_id, tenant_id, tag, seq,
    fence, attempt, max_attempts, answered_fence, answered_verb
);
