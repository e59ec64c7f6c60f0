-- Lanes in which someone is, and who waits first in them, with all that is needed to let those
-- into their queues, and the places that each has in other lanes. The caller has locked the
-- lanes: nobody else lets them go on, and whoever cancels them waits.
--
-- $1 int[], $2 int[], $3 text[]: the lanes, by limit, tenant and key   $4 bigint[]: how many of
-- each   $5 bigint[]: behind which place, null for the last one served
select k.n, l.number, l.held, l.served, l.last, l.slots as lane_slots, l.meter::text as meter,
    l.alarm_seq, l.alarm_due,
    p.run_id, p.idx, p.seq, w.fence, w.attempt, w.answered_fence, w.answered_verb,
    r.id, r.definition_id, r.tenant, r.state, r.round, r.open_tasks, r.failed_tasks, r.priority,
    r.lane_keys::text as lane_keys,
    case when json_array_length(r.lane_keys) > 1 then array(
        select o.limit_id
        from windlass.lane_places o
        where o.run_id = p.run_id and o.idx = p.idx
        order by o.limit_id
    ) end as limits,
    case when json_array_length(r.lane_keys) > 1 then array(
        select o.seq
        from windlass.lane_places o
        where o.run_id = p.run_id and o.idx = p.idx
        order by o.limit_id
    ) end as places
from unnest($1::integer[], $2::integer[], $3::text[], $4::bigint[], $5::bigint[]) with ordinality
    as k (limit_id, tenant_id, key, wanted, after, n)
cross join lateral (
    select l.number, l.held, l.served, l.last, l.slots, l.meter, l.alarm_seq, l.alarm_due
    from windlass.lanes l
    where l.limit_id = k.limit_id and l.tenant_id = k.tenant_id and l.key = k.key
    order by l.number desc
    limit 1
) l
left join lateral (
    select p.run_id, p.idx, p.seq
    from windlass.lane_places p
    where p.limit_id = k.limit_id and p.tenant_id = k.tenant_id and p.key = k.key
        and p.seq > coalesce(k.after, l.served) and p.superseded is null
    order by p.seq
    limit k.wanted
) p on true
left join lateral (
    select w.fence, w.attempt, w.answered_fence, w.answered_verb
    from windlass.timers w
    where w.run_id = p.run_id and w.idx = p.idx
    offset 0
) w on true
left join lateral (
    select r.id, r.definition_id, r.tenant, r.state, r.round, r.open_tasks, r.failed_tasks,
        r.priority, r.lane_keys
    from windlass.runs r
    where r.id = p.run_id
    offset 0
) r on true
order by k.n, p.seq;
