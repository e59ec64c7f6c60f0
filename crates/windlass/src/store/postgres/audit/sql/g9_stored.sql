-- G9.stored: the stored attempt of a task is that of its last event
--
-- The next claim and every decision about a failure read the stored attempt.
select
    case
        when t.attempt <> coalesce(e.attempt, 0) then
            format(
                'task %s/%s has attempt %s, its last event says %s', t.run_id, t.idx, t.attempt,
                coalesce(e.attempt, 0)
            )
    end as problem
from windlass.task_states t
left join (
    select distinct on (e.run_id, e.idx) e.run_id, e.idx, e.attempt
    from windlass.events e
    where e.idx is not null and {scope e.run_id}
    order by e.run_id, e.idx, e.id desc
) e on e.run_id = t.run_id and e.idx = t.idx
where {scope t.run_id}
