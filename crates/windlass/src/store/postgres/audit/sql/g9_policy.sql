-- G9.policy: a task has the limit of attempts that its definition says
--
-- The limit is copied into the task and into the place it stands in, so that a claim need
-- not look it up.
select
    case
        when t.max_attempts <> d.max_attempts then
            format(
                'task %s/%s may be started %s times, its definition says %s', t.run_id, t.idx,
                t.max_attempts, d.max_attempts
            )
        when coalesce(l.max_attempts, q.max_attempts, w.max_attempts) <> d.max_attempts then
            format(
                'the place of task %s/%s allows %s starts, its definition says %s', t.run_id, t.idx,
                coalesce(l.max_attempts, q.max_attempts, w.max_attempts), d.max_attempts
            )
    end as problem
from windlass.tasks t
join windlass.runs r on r.id = t.run_id
join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = t.idx
left join windlass.leases l on l.run_id = t.run_id and l.idx = t.idx
left join windlass.ready q on q.run_id = t.run_id and q.idx = t.idx
left join windlass.timers w on w.run_id = t.run_id and w.idx = t.idx
where {scope t.run_id}
