-- Makes runs that have no keys and whose ids nobody else should have. It fails if one is there
-- already: to look for that first costs a third of what the runs cost.
--
-- $1 uuid[]: ids   $2 int[]: definitions   $3 text[]: workflows   $4 int[]: versions
-- $5 text[]: tenants   $6 int[]: open tasks   $7 smallint[]: priorities   $8 timestamptz: the time
-- $9 text[]: metadata, null for none   $10 text[]: inputs   $11 text[]: lane keys, null for none
insert into windlass.runs (
    id, definition_id, workflow, version, tenant, open_tasks, priority, created_at, metadata, input,
    lane_keys
)
select k.id, k.definition_id, k.workflow, k.version, k.tenant, k.open_tasks, k.priority, $8,
    k.metadata::jsonb, k.input::json, k.lane_keys::json
from unnest(
    $1::uuid[], $2::integer[], $3::text[], $4::integer[], $5::text[], $6::integer[],
    $7::smallint[], $9::text[], $10::text[], $11::text[]
) as k (
    id, definition_id, workflow, version, tenant, open_tasks, priority, metadata, input, lane_keys
);
