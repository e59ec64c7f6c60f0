-- G8.open-tasks: open_tasks of a run counts its tasks that have not ended
--
-- The run ends when the counter falls to 0: with a counter that is too large it never
-- would, with one that is too small it would end over unfinished tasks. An on-failure task
-- counts from the moment it may run.
select
    case
        when r.open_tasks <> t.open then
            format('run %s has open_tasks %s, counted %s', r.id, r.open_tasks, t.open)
    end as problem
from windlass.runs r
join (
    select
        t.run_id,
        count(1) filter (
            where
                t.state = 'active'
                or t.state = 'pending' and d.kind <> 'on_failure'
        ) as open
    from windlass.tasks t
    join windlass.runs r on r.id = t.run_id
    join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = t.idx
    where {scope t.run_id}
    group by t.run_id
) t on t.run_id = r.id
where {scope r.id}
