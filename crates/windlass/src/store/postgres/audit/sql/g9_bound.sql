-- G9.bound: no task is started more often than its policy allows
--
-- Starts that were handed back do not count, and neither do those before a retry of the
-- run or before a function was parked. The constraints on the tables hold the stored attempt within the limit; this holds
-- the history to it.
select
    case
        when c.starts > t.max_attempts then
            format(
                'task %s/%s was started %s times, its policy allows %s', c.run_id, c.idx, c.starts,
                t.max_attempts
            )
    end as problem
from (
    select
        s.run_id, s.idx, s.resets,
        count(1) filter (where s.kind = 'started')
            - count(1) filter (where s.kind = 'released') as starts
    from (
        select
            e.run_id, e.idx, e.kind,
            count(1) filter (where e.kind in ('reset', 'parked', 'continued'))
                over (partition by e.run_id, e.idx order by e.id) as resets
        from windlass.events e
        where e.idx is not null and {scope e.run_id}
    ) s
    group by s.run_id, s.idx, s.resets
) c
join windlass.tasks t on t.run_id = c.run_id and t.idx = c.idx
