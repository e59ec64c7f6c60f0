-- G4.stored: the stored fence of a task is that of its newest start
--
-- The next claim adds one to the stored fence. If it fell behind the history, the next
-- worker would get a fence that an earlier one has.
select
    case
        when t.fence <> coalesce(e.fence, 0) then
            format(
                'task %s/%s has fence %s, its newest start had %s', t.run_id, t.idx, t.fence,
                coalesce(e.fence, 0)
            )
    end as problem
from windlass.task_states t
left join (
    select e.run_id, e.idx, max(e.fence) as fence
    from windlass.events e
    where e.idx is not null and e.kind = 'started' and {scope e.run_id}
    group by e.run_id, e.idx
) e on e.run_id = t.run_id and e.idx = t.idx
where {scope t.run_id}
