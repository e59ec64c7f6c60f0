-- G8.parents: the counters of a task count its parents
--
-- The task is decided about when pending_parents falls to 0, by what the other two say. One
-- parent counted twice starts it too early; one that is forgotten leaves it pending for
-- ever.
select
    case
        when
            c.pending_parents <> c.pending
            or c.failed_parents <> c.failed
            or c.skipped_parents <> c.skipped
        then
            format(
                'task %s/%s has parents pending %s, failed %s, skipped %s; counted %s, %s, %s',
                c.run_id, c.idx, c.pending_parents, c.failed_parents, c.skipped_parents,
                c.pending, c.failed, c.skipped
            )
    end as problem
from (
    select
        t.run_id, t.idx, t.pending_parents, t.failed_parents, t.skipped_parents,
        count(1) filter (where p.state in ('pending', 'active')) as pending,
        count(1) filter (where p.state = 'failed') as failed,
        count(1) filter (where p.state = 'skipped') as skipped
    from windlass.tasks t
    join windlass.runs r on r.id = t.run_id
    join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = t.idx
    left join (
        {parents}
    ) a on a.definition_id = r.definition_id and a.idx = t.idx
    left join windlass.tasks p on p.run_id = t.run_id and p.idx = a.parent
    where {scope t.run_id}
    group by t.run_id, t.idx, t.pending_parents, t.failed_parents, t.skipped_parents
) c
