-- Records what became of calls of durable functions, if the fences are those of the leases.
--
-- The leases are locked for key share: whoever takes a task away deletes its lease, and comes
-- before or after. No lock of a run is needed, since only the holder of the lease writes here.
-- A call whose result is known, whose wait has begun, or that is another one, is not touched,
-- and neither is any other call of the same recording.
--
-- $1 uuid[], $2 int[], $3 bigint[]: the tasks, each once and sorted, and their fences
-- $4 bigint[]: the task of each call, by its place in these   $5 int[]: calls
-- $6 text[]: kinds   $7 text[]: names   $8 int[]: places of results, null if it is open
-- $9 int[]: failed attempts   $10 timestamptz[]: due times   $11 text[]: values
-- $12 text[]: failures   $13 int[]: how many children may still run   $14 text[]: keys
with held as materialized (
    select k.n, l.run_id, l.idx
    from unnest($1::uuid[], $2::integer[], $3::bigint[])
        with ordinality as k (run_id, idx, fence, n)
    cross join lateral (
        select x.run_id, x.idx
        from windlass.leases x
        where x.run_id = k.run_id and x.idx = k.idx and x.fence = k.fence
        for key share
    ) l
),
wanted as materialized (
    select h.n, h.run_id, h.idx, w.call, w.kind, w.name, w.number, w.failures, w.due, w.value,
        w.failure, w.children_max, w.key
    from unnest(
        $4::bigint[], $5::integer[], $6::text[], $7::text[], $8::integer[], $9::integer[],
        $10::timestamptz[], $11::text[], $12::text[], $13::integer[], $14::text[]
    ) as w (n, call, kind, name, number, failures, due, value, failure, children_max, key)
    join held h on h.n = w.n
),
clashing as materialized (
    select distinct w.n
    from wanted w
    cross join lateral (
        select x.call
        from windlass.steps x
        where x.run_id = w.run_id and x.idx = w.idx and x.call = w.call
            and (x.number is not null or x.kind <> w.kind or x.name <> w.name
                or x.key is distinct from w.key
                or w.number is null and w.kind <> 'child')
        offset 0
    ) s
),
written as (
    insert into windlass.steps (
        run_id, idx, call, number, kind, name, failures, due, value, failure, children_max,
        key
    )
    select w.run_id, w.idx, w.call, w.number, w.kind, w.name, w.failures, w.due,
        w.value::json, w.failure::json, w.children_max, w.key
    from wanted w
    where w.n not in (select c.n from clashing c)
    order by w.run_id, w.idx, w.call
    on conflict (run_id, idx, call) do update
    set number = excluded.number, failures = excluded.failures, due = excluded.due,
        value = excluded.value, failure = excluded.failure,
        children_max = excluded.children_max
)
select h.n, h.n in (select c.n from clashing c) as is_clashing
from held h;
