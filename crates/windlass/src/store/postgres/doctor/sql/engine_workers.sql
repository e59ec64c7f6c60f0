-- engine.workers: dead workers are cleaned up
--
-- A worker is dying until all its tasks are reclaimed. That takes one sweep, or several if it held very
-- many; a worker that stays dying has a task that no sweep can reclaim.
select
    'warning' as severity,
    format('worker %s (%s) has been dying since about %s', w.id, w.name, p.lease_until) as problem,
    'another transaction has locked one of its runs, a run is inconsistent, or no process leads '
    'reap (see engine.leaders)' as cause,
    'windlass audit finds inconsistent runs; end long transactions (see '
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
