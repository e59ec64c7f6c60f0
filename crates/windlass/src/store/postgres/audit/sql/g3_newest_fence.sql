-- G3.newest-fence: what happens to a task carries the fence of its newest start
--
-- A write with an older fence comes from a worker that had lost the task; it must have been
-- refused. Every event between two starts has the fence of the first of them, and 0 before
-- the first start.
select
    case
        when c.fence <> c.newest then
            format(
                'task %s/%s: event %s (%s) has fence %s, the newest is %s', c.run_id, c.idx, c.id,
                c.kind, c.fence, c.newest
            )
    end as problem
from (
    select
        e.run_id, e.idx, e.id, e.kind, e.fence,
        coalesce(
            max(e.fence) filter (where e.kind = 'started')
                over (partition by e.run_id, e.idx order by e.id),
            0
        ) as newest
    from windlass.events e
    where e.idx is not null and {scope e.run_id}
) c
where c.kind <> 'started'
