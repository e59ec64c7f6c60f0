-- Writes which places tasks have taken in lanes.
--
-- $1 uuid[], $2 int[]: the tasks   $3 int[], $4 int[], $5 text[]: the lanes, by limit, tenant and
-- key   $6 bigint[]: the places   $7 int[]: how many slots the lanes have
insert into windlass.lane_places (run_id, idx, limit_id, tenant_id, key, seq, slots)
select k.run_id, k.idx, k.limit_id, k.tenant_id, k.key, k.seq, k.slots
from unnest(
    $1::uuid[], $2::integer[], $3::integer[], $4::integer[], $5::text[], $6::bigint[],
    $7::integer[]
) as k (run_id, idx, limit_id, tenant_id, key, seq, slots);
