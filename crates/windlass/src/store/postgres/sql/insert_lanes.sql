-- Writes lanes as they are now, each in a row of its own with a larger number.
--
-- $1 int[], $2 int[], $3 text[]: the lanes, by limit, tenant and key   $4 bigint[]: numbers
-- $5 int[]: slots that are taken   $6 bigint[]: the last places served   $7 bigint[]: the last
-- places taken   $8 int[]: the most slots they have had
insert into windlass.lanes (limit_id, tenant_id, key, number, held, served, last, slots)
select k.limit_id, k.tenant_id, k.key, k.number, k.held, k.served, k.last, k.slots
from unnest(
    $1::integer[], $2::integer[], $3::text[], $4::bigint[], $5::integer[], $6::bigint[],
    $7::bigint[], $8::integer[]
) as k (limit_id, tenant_id, key, number, held, served, last, slots);
