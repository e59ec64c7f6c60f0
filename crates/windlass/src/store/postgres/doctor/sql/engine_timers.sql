-- engine.timers: no timer and no deadline is overdue
--
-- Checks the oldest of each.
select
    'critical' as severity,
    format(
        'task %s/%s was due at %s and is %s late', t.run_id, t.idx, t.due,
        date_trunc('second', clock_timestamp() - t.due)
    ) as problem,
    'no process leads promote_due (see engine.leaders), or another transaction has locked the run' as cause,
    'start a worker, or a process with Windlass::duties; end long transactions (see '
    'server.transactions)' as remedy
from (
    select w.run_id, w.idx, w.due from windlass.timers w order by w.due, w.seq limit 1
) t
where t.due < clock_timestamp() - {late_after}
union all
select
    'critical',
    format(
        'a deadline of run %s passed at %s and is %s late', d.run_id, d.due,
        date_trunc('second', clock_timestamp() - d.due)
    ),
    'no process leads promote_due (see engine.leaders), or another transaction has locked the run',
    'start a worker, or a process with Windlass::duties; end long transactions (see '
    'server.transactions)'
from (select l.run_id, l.due from windlass.deadlines l order by l.due limit 1) d
where d.due < clock_timestamp() - {late_after}
