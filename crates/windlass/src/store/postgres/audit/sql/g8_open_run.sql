-- G8.open-run: a run that is running has a task that has not ended
--
-- The end of the last task ends the run in the same transaction, or starts its on-failure
-- task. A run that is running without an open task waits for an end that has been.
select
    case
        when c.open = 0 then format('run %s is running and all its tasks have ended', c.run_id)
    end as problem
from (
    select
        t.run_id,
        count(1) filter (
            where
                t.state = 'active'
                or t.state = 'pending' and d.kind <> 'on_failure'
        ) as open
    from windlass.tasks t
    join windlass.runs r on r.id = t.run_id and r.state = 'running'
    join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = t.idx
    where {scope t.run_id}
    group by t.run_id
) c
