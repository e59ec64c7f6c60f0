-- engine.leaders: every maintenance job has a live leader
--
-- No leader is expected in a database without work and workers, none for retention without rules, and
-- none for schedules without schedules. Counting and auditing delay nothing if they have no leader.
select
    'critical' as severity,
    case
        when l.holder is null then format('no process has ever led %s', l.duty)
        when l.is_given_up then
            format('%s gave up %s, and no other process leads it', l.holder_name, l.duty)
        else format(
            'the leader of %s, %s, was last seen at %s', l.duty, l.holder_name, l.renewed_at
        )
    end as problem,
    case l.duty
        when 'promote_due' then
            'delays, sleeps and retries do not end, and runs that were started inside your own '
            'transactions do not reach the queues'
        when 'prune' then 'ended runs are kept longer than their retention'
        when 'schedules' then 'schedules do not fire'
        else 'tasks of dead workers are not reclaimed'
    end as cause,
    'start a worker, or a process with Windlass::duties; windlass leaders shows the last leader' as remedy
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
