-- The calls of a function that have no result, the first that are due first: whether a signal has
-- come to the key of those that wait for one, and which children the others wait for.
--
-- $1 uuid, $2 int: the task   $3 bigint: how many   $4 bigint: where to stop counting children
-- $5 int: how many children
select s.call, s.number, s.kind, s.name, s.failures, s.due, null::text as value,
    s.failure::text as failure, s.children_max, s.key, coalesce(w.is_told, false) as has_signal,
    c.open_children, c.first_children
from (
    select x.call, x.number, x.kind, x.name, x.failures, x.due, x.failure, x.children_max, x.key
    from windlass.steps x
    where x.run_id = $1 and x.idx = $2 and x.number is null
    order by x.due nulls last, x.call
    limit $3
) s
left join lateral (
    select w.is_told
    from windlass.key_waiters w
    where w.run_id = $1 and w.idx = $2 and w.call = s.call
    offset 0
) w on true
cross join lateral (
    select count(1) as open_children,
        coalesce((array_agg(c.child_id order by c.place))[1:$5], '{}') as first_children
    from (
        select c.child_id, c.place
        from windlass.children c
        where c.run_id = $1 and c.idx = $2 and c.call = s.call and c.has_ended is null
        limit $4
    ) c
) c
order by s.due nulls last, s.call;
