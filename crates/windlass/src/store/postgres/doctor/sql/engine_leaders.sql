-- engine.leaders: every duty has a leader that is heard of
--
-- Of a database where nothing waits and nobody works none is expected, nor one that deletes old runs
-- where all are kept, nor one for schedules where there is none. Without
-- one that counts or checks nothing waits longer.
select
    'critical' as severity,
    case
        when l.holder is null then format('nobody has ever done the duty %s', l.duty)
        when l.is_given_up then
            format('%s gave up the duty %s and nobody has taken it', l.holder_name, l.duty)
        else format(
            'the leader of the duty %s, %s, was last heard of at %s', l.duty, l.holder_name,
            l.renewed_at
        )
    end as problem,
    case l.duty
        when 'promote_due' then
            'delays, sleeps and pauses do not end, and runs that were started inside '
            'transactions of users are not let into the queues'
        when 'prune' then 'runs that are over stay for longer than they are to be kept'
        when 'schedules' then 'schedules do not fire'
        else 'tasks of workers that died are not given to others'
    end as cause,
    'start a worker, or a process with Windlass::duties; windlass leaders shows who led' as remedy
from windlass.leaders l
where (
        l.holder is null
        or l.until < clock_timestamp() - {late_after}
        or l.is_given_up and l.renewed_at < clock_timestamp() - {late_after}
    )
    and l.duty not in ('rollup', 'audit')
    and (l.duty <> 'prune' or exists (select from windlass.retention))
    and (
        l.duty <> 'schedules'
        or exists (select from windlass.schedules s where s.state = 'active')
    )
    and (
        exists (
            select from windlass.workers w
            where w.state <> 'dead' and w.joined_at < clock_timestamp() - {late_after}
        )
        or (select t.due from windlass.timers t order by t.due limit 1) < 'infinity'
        or (select d.due from windlass.deadlines d order by d.due limit 1) is not null
        or (select s.seq from windlass.staged s order by s.seq limit 1) is not null
    )
