-- Writes which places tasks have taken in lanes.
--
-- $1 uuid[], $2 int[]: the tasks   $3 int[], $4 int[], $5 text[]: the lanes, by limit, tenant and
-- key   $6 bigint[]: the places   $7 int[]: how many slots the lanes have   $8 bool[]: whether
-- newcomers take the place of the oldest
insert into windlass.lane_places (run_id, idx, limit_id, tenant_id, key, seq, slots, is_rival)
select k.run_id, k.idx, k.limit_id, k.tenant_id, k.key, k.seq, k.slots, k.is_rival
from unnest(
    $1::uuid[], $2::integer[], $3::integer[], $4::integer[], $5::text[], $6::bigint[],
    $7::integer[], $8::boolean[]
) as k (run_id, idx, limit_id, tenant_id, key, seq, slots, is_rival);
