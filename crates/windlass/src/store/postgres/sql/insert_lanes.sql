-- Writes lanes as they are now, each in a row of its own with a larger number.
--
-- $1 int[], $2 int[], $3 text[]: the lanes, by limit, tenant and key   $4 bigint[]: numbers
-- $5 int[]: how many are under way   $6 bigint[]: the last places that had their turn
-- $7 bigint[]: the last places taken   $8 int[]: the most slots they have had   $9 text[]: what
-- else they remember   $10 bigint[], $11 timestamptz[]: alarms   $12 timestamptz[]: when they can
-- be forgotten
insert into windlass.lanes (
    limit_id, tenant_id, key, number, held, served, last, slots, meter, alarm_seq, alarm_due,
    forget_at
)
select k.limit_id, k.tenant_id, k.key, k.number, k.held, k.served, k.last, k.slots, k.meter::json,
    k.alarm_seq, k.alarm_due, k.forget_at
from unnest(
    $1::integer[], $2::integer[], $3::text[], $4::bigint[], $5::integer[], $6::bigint[],
    $7::bigint[], $8::integer[], $9::text[], $10::bigint[], $11::timestamptz[],
    $12::timestamptz[]
) as k (
    limit_id, tenant_id, key, number, held, served, last, slots, meter, alarm_seq, alarm_due,
    forget_at
);
