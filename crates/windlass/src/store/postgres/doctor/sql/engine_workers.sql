-- engine.workers: workers that were found dead are buried soon
--
-- A worker is dying while tasks of it remain to be taken away. That takes one sweep, or several
-- if it had very many; one that is dying for long has a task that no sweep can take.
select
    'warning' as severity,
    format('worker %s (%s) is dying since about %s', w.id, w.name, p.lease_until) as problem,
    'a run of it is locked by a transaction of somebody else, contradicts itself, or nobody '
    'reaps (see engine.leaders)' as cause,
    'windlass audit finds runs that contradict themselves; end long transactions (see '
    'server.transactions)' as remedy
from windlass.workers w
cross join lateral (
    select x.lease_until
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p
where w.state <> 'dead' and w.state = 'dying' and p.lease_until < clock_timestamp() - {late_after}
