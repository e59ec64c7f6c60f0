-- G9.policy: a task that is active has the limit of attempts that its definition says
--
-- The limit is copied into the place that the task stands in, so that a claim need not look
-- it up.
select
    case
        when p.max_attempts <> d.max_attempts then
            format(
                'the place of task %s/%s allows %s starts, its definition says %s', p.run_id, p.idx,
                p.max_attempts, d.max_attempts
            )
    end as problem
from (
    select q.run_id, q.idx, q.max_attempts from windlass.ready q
    union all
    select l.run_id, l.idx, l.max_attempts from windlass.leases l
    union all
    select w.run_id, w.idx, w.max_attempts from windlass.timers w
) p
join windlass.runs r on r.id = p.run_id
join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = p.idx
where {scope p.run_id}
