-- Writes what is known of calls of durable functions.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked and which have no such
-- result   $3 int[]: calls   $4 text[]: kinds   $5 text[]: names
-- $6 int[]: places of results, null if it is open   $7 int[]: failed attempts
-- $8 timestamptz[]: due times   $9 text[]: values   $10 text[]: failures
-- $11 int[]: how many children may still run   $12 text[]: keys
insert into windlass.steps as s (
    run_id, idx, call, number, kind, name, failures, due, value, failure, children_max, key
)
select w.run_id, w.idx, w.call, w.number, w.kind, w.name, w.failures, w.due, w.value::json,
    w.failure::json, w.children_max, w.key
from unnest(
    $1::uuid[], $2::integer[], $3::integer[], $4::text[], $5::text[], $6::integer[],
    $7::integer[], $8::timestamptz[], $9::text[], $10::text[],
    $11::integer[], $12::text[]
) as w (run_id, idx, call, kind, name, number, failures, due, value, failure, children_max, key)
order by w.run_id, w.idx, w.call
on conflict (run_id, idx, call) do update
set number = excluded.number, failures = excluded.failures, due = excluded.due,
    value = excluded.value, failure = excluded.failure, children_max = excluded.children_max
where s.number is null;
