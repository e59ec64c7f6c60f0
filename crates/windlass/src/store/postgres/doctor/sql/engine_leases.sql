-- engine.leases: leases that ran out are taken away
--
-- Looked at are workers that are not dead, by their last signs of life, and the tasks with a
-- visibility timeout that is over for the longest time.
select
    'critical' as severity,
    format(
        'the lease of worker %s (%s, process %s on %s) ran out at %s, and it still has tasks',
        w.id, w.name, coalesce(w.pid::text, 'unknown'), coalesce(nullif(w.host, ''), 'unknown'),
        p.lease_until
    ) as problem,
    'nobody reaps (see engine.leaders), or transactions of users keep the leases' as cause,
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
        'task %s/%s was to be taken away from worker %s at %s, and still is its own',
        v.run_id, v.idx, v.worker_id, v.take_back_at
    ),
    'nobody reaps (see engine.leaders), or a transaction of a user keeps the lease',
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
