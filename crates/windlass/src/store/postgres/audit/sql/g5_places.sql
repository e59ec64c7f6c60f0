-- G5.places: who stands in lanes is a task that has not ended and has as many places as limits
--
-- A task that is ready or runs has a place with a slot in its lane of each limit that its input
-- has a key for. One that waits in a lane has a row in `timers` and stands in no lane behind
-- the one it waits in. What has ended stands nowhere, or its slot would never be free again, unless
-- it failed and halts its stream. What comes out of definitions is materialized, as in G7.parents.
with specs as materialized (
    {specs}
),
limited as materialized (
    select s.definition_id, s.idx, s.count, s.before, s.halts
    from (
        select s.definition_id, s.idx,
            exists (
                select
                from json_array_elements(s.spec -> 'limits') l (one)
                where (l.one ->> 'halts')::boolean
            ) as halts,
            coalesce(json_array_length(s.spec -> 'limits'), 0) as count,
            coalesce(sum(json_array_length(s.spec -> 'limits')) over (
                partition by s.definition_id order by s.idx
                rows between unbounded preceding and 1 preceding
            ), 0) as before
        from specs s
    ) s
    where s.count > 0
)
select
    case
        when t.state not in ('active', 'pending') and p.places > 0
            and not (t.state = 'failed' and s.halts and r.state <> 'cancelled')
        then
            format('task %s/%s is %s and stands in %s lanes', t.run_id, t.idx, t.state, p.places)
        when t.state = 'pending' and p.places > 0 then
            format('task %s/%s waits for its parents and stands in %s lanes', t.run_id, t.idx,
                p.places)
        when (q.run_id is not null or l.run_id is not null)
            and (p.places <> k.needed or p.waiting > 0)
        then
            format('task %s/%s may run with slots in %s of %s lanes', t.run_id, t.idx,
                p.places - p.waiting, k.needed)
        when p.waiting > 0 and w.is_waiting is not true then
            format('task %s/%s waits in a lane and is not said to wait', t.run_id, t.idx)
        when p.waiting > 1 then
            format('task %s/%s waits in %s lanes at once', t.run_id, t.idx, p.waiting)
    end as problem
from limited s
join windlass.runs r on r.definition_id = s.definition_id and r.lane_keys is not null
join windlass.tasks t on t.run_id = r.id and t.idx = s.idx
left join windlass.ready q on q.run_id = r.id and q.idx = s.idx
left join windlass.leases l on l.run_id = r.id and l.idx = s.idx
left join windlass.timers w on w.run_id = r.id and w.idx = s.idx
cross join lateral (
    select count(1) filter (where k.value <> 'null') as needed
    from (
        select k.value::text as value, k.n
        from json_array_elements(r.lane_keys) with ordinality as k (value, n)
    ) k
    where k.n > s.before and k.n <= s.before + s.count
) k
cross join lateral (
    select count(1) as places,
        count(1) filter (
            where p.superseded = 'waiting' or p.seq > coalesce(a.served, -1)
        ) as waiting
    from windlass.lane_places p
    left join lateral (
        select a.served
        from windlass.lanes a
        where a.limit_id = p.limit_id and a.tenant_id = p.tenant_id and a.key = p.key
        order by a.number desc
        limit 1
    ) a on true
    where p.run_id = r.id and p.idx = s.idx
) p
where {scope r.id}
