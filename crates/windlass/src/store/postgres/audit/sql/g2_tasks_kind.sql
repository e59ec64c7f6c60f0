-- G2.tasks-kind: sleeps sleep and wake, handlers are queued and started
--
-- A sleep that was queued would be given to a worker that has nothing to run for it; a
-- handler that woke would have succeeded without having run.
select
    case
        when (e.kind in ('sleeping', 'woken')) <> (d.kind = 'sleep') then
            format('task %s/%s: event %s is %s, the task is of kind %s', e.run_id, e.idx, e.id,
                e.kind, d.kind)
    end as problem
from windlass.events e
join windlass.runs r on r.id = e.run_id
join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = e.idx
where e.kind in ('queued', 'delayed', 'sleeping', 'woken', 'started') and {scope e.run_id}
