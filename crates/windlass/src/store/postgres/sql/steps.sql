-- What is known of the calls of durable functions.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select k.run_id, k.idx, s.call, s.number, s.kind, s.name, s.failures, s.due,
    s.value::text as value, s.failure::text as failure, s.children_max, s.key
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
cross join lateral (
    select x.call, x.number, x.kind, x.name, x.failures, x.due, x.value, x.failure,
        x.children_max, x.key
    from windlass.steps x
    where x.run_id = k.run_id and x.idx = k.idx
    order by x.call
    offset 0
) s;
