-- The workers that are there: those that were heard of within their lease and do not drain. One
-- that owns keys is heard of also while it has nothing to do.
--
-- $1 timestamptz: the time, null for that of the clock
select w.id, w.queues, w.workflows, w.versions, w.metadata ->> 'windlass.tenant' as tenant
from windlass.workers w
cross join lateral (
    select x.lease_until
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p
where w.state = 'live' and w.state <> 'dead' and not w.is_draining
    and p.lease_until > coalesce($1, clock_timestamp());
