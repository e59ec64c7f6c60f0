-- The lane in which a task waits, if it does, and who is under way there: a row for each of the
-- first of those, or one if there are none.
--
-- $1 uuid, $2 int: the task   $3 bigint: where to stop counting   $4 bigint: how many holders
select m.name as limit_name, p.key, p.superseded is not null as is_out,
    coalesce(l.held, 0) as held, l.meter::text as meter, h.run_id, h.task,
    (
        select count(1)
        from (
            select
            from windlass.lane_places b
            where b.limit_id = p.limit_id and b.tenant_id = p.tenant_id and b.key = p.key
                and b.seq > l.served and b.seq < p.seq and b.superseded is null
            limit $3
        ) b
    ) as waiting_before
from windlass.lane_places p
left join lateral (
    select l.held, l.served, l.meter
    from windlass.lanes l
    where l.limit_id = p.limit_id and l.tenant_id = p.tenant_id and l.key = p.key
    order by l.number desc
    limit 1
) l on true
cross join lateral (
    select m.name from windlass.limits m where m.id = p.limit_id offset 0
) m
left join lateral (
    select h.seq, h.run_id, d.name as task
    from (
        select h.seq, h.run_id, h.idx
        from windlass.lane_places h
        where h.limit_id = p.limit_id and h.tenant_id = p.tenant_id and h.key = p.key
            and h.seq <= l.served and h.superseded is distinct from 'waiting'
        order by h.seq
        limit $4
    ) h
    cross join lateral (
        select r.definition_id from windlass.runs r where r.id = h.run_id offset 0
    ) r
    cross join lateral (
        select d.name
        from windlass.definition_tasks d
        where d.definition_id = r.definition_id and d.idx = h.idx
        offset 0
    ) d
) h on true
where p.run_id = $1 and p.idx = $2
    and (p.superseded = 'waiting' or p.superseded is null and p.seq > l.served)
order by h.seq;
