-- engine.staged: what was staged is let into the queues or delivered
--
-- Only what is staged for the longest time is looked at. A run that was started inside a
-- transaction of a user counts from its start, also if that transaction committed just now.
select
    'critical' as severity,
    format(
        '%s run %s is staged since %s', case s.purpose
            when 'child_ended' then 'word of the end of a child of'
            when 'cancelled' then 'word to the children of the cancelled'
            when 'signalled' then 'word of a signal to a key for'
            else 'the start of'
        end, s.run_id, s.since
    ) as problem,
    'nobody promotes what is due (see engine.leaders), or its run is locked by a transaction of '
    'somebody else' as cause,
    'start a worker, or a process with Windlass::duties; end long transactions (see '
    'server.transactions)' as remedy
from (
    select
        g.run_id,
        g.purpose,
        case g.purpose
            when 'child_ended' then
                (select r.ended_at from windlass.runs r where r.id = g.child_id)
            when 'cancelled' then (select r.ended_at from windlass.runs r where r.id = g.run_id)
            when 'signalled' then (
                select min(k.at)
                from windlass.key_waiters w
                join windlass.key_signals k
                    on k.tenant = w.tenant and k.key = w.key and k.name = w.name
                where
                    w.run_id = g.run_id and w.is_told and not k.is_taken
                    and k.expires_at > clock_timestamp()
            )
            else (select r.created_at from windlass.runs r where r.id = g.run_id)
        end as since
    from windlass.staged g
    order by g.seq
    limit 1
) s
where s.since < clock_timestamp() - {late_after}
