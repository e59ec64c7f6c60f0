-- G1.unblocked: a task whose parents have ended does not stay pending
--
-- The last parent to end decides about its children in the same transaction, and a run's
-- first tasks are decided about when it is admitted. A task that is pending without a
-- parent to wait for was forgotten, or has lost its place: nothing will look at it again.
-- The parents themselves are asked, not the counter, which the loss of a place may have
-- taken with it. On-failure tasks wait for the whole run, and the runs in `staged` for their
-- admission.
select
    case
        when c.open = 0 then
            format('task %s/%s is pending and waits for no parent', c.run_id, c.idx)
    end as problem
from (
    select t.run_id, t.idx, count(a.parent) filter (where p.run_id is null) as open
    from windlass.tasks t
    join windlass.runs r on r.id = t.run_id and r.state = 'running'
    join windlass.definition_tasks d
        on d.definition_id = r.definition_id and d.idx = t.idx and d.kind <> 'on_failure'
    left join (
        select distinct s.run_id from windlass.staged s where s.purpose is null
    ) s on s.run_id = t.run_id
    left join (
        {parents}
    ) a on a.definition_id = r.definition_id and a.idx = t.idx
    left join windlass.task_rows p
        on p.run_id = t.run_id and p.idx = a.parent and p.state in ({final})
    where t.state = 'pending' and s.run_id is null and {scope t.run_id}
    group by t.run_id, t.idx
) c
