-- G3.answered: a write that is answered "accepted already" is in the history
--
-- A repeated write is known by the fence and the verb of the newest write that was applied.
-- If the history has no such write, a worker would be told that its result is recorded
-- while it is not.
select
    case
        when e.run_id is null then
            format(
                'task %s/%s answers %s with fence %s as accepted, which never was', t.run_id, t.idx,
                t.verb, t.fence
            )
    end as problem
from (
    select
        t.run_id, t.idx,
        case
            when l.run_id is not null then l.answered_fence
            when q.run_id is not null then q.answered_fence
            when w.run_id is not null then w.answered_fence
            else t.answered_fence
        end as fence,
        case
            when l.run_id is not null then l.answered_verb
            when q.run_id is not null then q.answered_verb
            when w.run_id is not null then w.answered_verb
            else t.answered_verb
        end as verb
    from windlass.tasks t
    left join windlass.leases l on l.run_id = t.run_id and l.idx = t.idx
    left join windlass.ready q on q.run_id = t.run_id and q.idx = t.idx
    left join windlass.timers w on w.run_id = t.run_id and w.idx = t.idx
    where {scope t.run_id}
) t
left join (
    select
        e.run_id, e.idx, e.fence,
        case e.kind when 'released' then 'release' else 'finish' end as verb
    from windlass.events e
    where
        e.idx is not null
        and e.from_state = 'running'
        and e.kind in ('succeeded', 'failed', 'retrying', 'skipped', 'released', 'parked', 'continued')
        and {scope e.run_id}
    group by 1, 2, 3, 4
) e on e.run_id = t.run_id and e.idx = t.idx and e.fence = t.fence and e.verb = t.verb
where t.fence is not null or t.verb is not null
