-- What is known of some calls of durable functions.
--
-- $1 uuid[], $2 int[], $3 int[]: the tasks and the calls
select k.run_id, k.idx, s.call, s.number, s.kind, s.name, s.failures, s.due,
    s.value::text as value, s.failure::text as failure, s.children_max, s.key
from unnest($1::uuid[], $2::integer[], $3::integer[]) as k (run_id, idx, call)
cross join lateral (
    select x.call, x.number, x.kind, x.name, x.failures, x.due, x.value, x.failure,
        x.children_max, x.key
    from windlass.steps x
    where x.run_id = k.run_id and x.idx = k.idx and x.call = k.call
    offset 0
) s;
