-- Puts tasks back where they stood in their queues.
--
-- A tenant or a route that is not there is a null, which the table refuses.
--
-- $1 uuid[], $2 int[]: the tasks   $3 int[]: definitions   $4 int[]: routes
-- $5 text[]: tenants   $6 bigint[]: tags   $7 bigint[]: ages
-- $8 bigint[]: fences   $9 int[]: attempts   $10 int[]: the most attempts
-- $11 bigint[], $12 text[]: the newest answers
insert into windlass.ready (
    run_id, idx, definition_id, route_id, level_id, tenant_id, tag, seq,
    fence, attempt, max_attempts, answered_fence, answered_verb
)
select k.run_id, k.idx, k.definition_id, k.route_id,
    (select l.level_id from windlass.routes l where l.id = k.route_id),
    (select t.id from windlass.tenants t where t.name = k.tenant),
    k.tag, k.seq, k.fence, k.attempt, k.max_attempts, k.answered_fence, k.answered_verb
from unnest(
    $1::uuid[], $2::integer[], $3::integer[], $4::integer[], $5::text[],
    $6::bigint[], $7::bigint[], $8::bigint[], $9::integer[], $10::integer[], $11::bigint[],
    $12::text[]
) as k (
    run_id, idx, definition_id, route_id, tenant, tag, seq,
    fence, attempt, max_attempts, answered_fence, answered_verb
);
