-- G8.failed-tasks: failed_tasks of a run counts its failed tasks
--
-- The verdict of the run, and whether its on-failure task runs, is read from this counter.
select
    case
        when r.failed_tasks <> t.failed then
            format('run %s has failed_tasks %s, counted %s', r.id, r.failed_tasks, t.failed)
    end as problem
from windlass.runs r
join (
    select t.run_id, count(1) filter (where t.state = 'failed') as failed
    from windlass.tasks t
    where {scope t.run_id}
    group by t.run_id
) t on t.run_id = r.id
where {scope r.id}
