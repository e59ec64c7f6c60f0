-- engine.leases: tasks with expired leases are reclaimed
--
-- Checks live workers by their last heartbeats, and the task whose visibility timeout expired first.
select
    'critical' as severity,
    format(
        'the lease of worker %s (%s, process %s on %s) expired at %s, but it still holds tasks',
        w.id, w.name, coalesce(w.pid::text, 'unknown'), coalesce(nullif(w.host, ''), 'unknown'),
        p.lease_until
    ) as problem,
    'no process leads reap (see engine.leaders), or other transactions have locked the leases' as cause,
    'start a worker, or a process with Windlass::duties; end long transactions (see '
    'server.transactions)' as remedy
from windlass.workers w
cross join lateral (
    select x.lease_until, x.oldest_claim
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p
where w.state <> 'dead'
    and w.state = 'live'
    and p.lease_until < clock_timestamp() - {late_after}
    and (
        select l.claim_seq
        from windlass.leases l
        where l.worker_id = w.id and l.claim_seq >= p.oldest_claim
        order by l.claim_seq
        limit 1
    ) is not null
union all
select
    'critical',
    format(
        'task %s/%s should have been reclaimed from worker %s at %s',
        v.run_id, v.idx, v.worker_id, v.take_back_at
    ),
    'no process leads reap (see engine.leaders), or another transaction has locked the lease',
    'start a worker, or a process with Windlass::duties; end long transactions (see '
    'server.transactions)'
from (
    select l.run_id, l.idx, l.worker_id, l.take_back_at
    from windlass.leases l
    where l.take_back_at is not null
    order by l.take_back_at
    limit 1
) v
where v.take_back_at < clock_timestamp() - {late_after}
