-- G18.marks: the virtual time of a level is not behind what was claimed of it
--
-- Virtual time is the largest mark of the level, and a claim moves its worker's mark in the
-- transaction that leases the tasks. If it lags, a newcomer is tagged before tasks that
-- were served long ago, and gets turns that it has no right to. Workers for one tenant are served
-- out of turn, and move nothing.
select
    case
        when m.tag is null or m.tag < l.tag then
            format(
                'task %s/%s was claimed with tag %s, virtual time of level %s is %s', l.run_id,
                l.idx, l.tag, a.level_id, coalesce(m.tag::text, 'not known')
            )
    end as problem
from windlass.leases l
left join windlass.routes a on a.id = l.route_id
left join (
    select m.level_id, max(m.tag) as tag from windlass.marks m group by m.level_id
) m on m.level_id = a.level_id
left join windlass.workers w on w.id = l.worker_id
where {scope l.run_id} and (w.metadata ->> 'windlass.tenant') is null
