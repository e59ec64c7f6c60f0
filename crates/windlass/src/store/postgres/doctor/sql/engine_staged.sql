-- engine.staged: staged starts and messages are delivered
--
-- Checks the oldest one. A run that was started inside your own transaction counts from its start, even
-- if that transaction has just committed.
select
    'critical' as severity,
    format(
        '%s run %s has been staged since %s', case s.purpose
            when 'child_ended' then 'the end of a child of'
            when 'cancelled' then 'the cancellation of the children of'
            when 'signalled' then 'a signal to a key for'
            else 'the start of'
        end, s.run_id, s.since
    ) as problem,
    'no process leads promote_due (see engine.leaders), or another transaction has locked the run' as cause,
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
