-- G1.no-other-place: only an active task has a place
--
-- A place that outlived its task gives work to a worker that nobody wants done: a task of a
-- cancelled run, or one that has ended. A place of a task whose parents have not ended is
-- found by G8.parents, and one of a task that does not exist at all by rows.without-run.
select
    case
        when t.state <> 'active' then
            format('task %s/%s is %s and stands in %s', p.run_id, p.idx, t.state, p.place)
    end as problem
from (
    select 'ready' as place, q.run_id, q.idx from windlass.ready q
    union all
    select 'leases', l.run_id, l.idx from windlass.leases l
    union all
    select 'timers', w.run_id, w.idx from windlass.timers w
) p
join windlass.tasks t on t.run_id = p.run_id and t.idx = p.idx
where {scope p.run_id}
