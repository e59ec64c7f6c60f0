-- Returns the workers that are not dead and serve a tenant: its own, and those that serve all tenants.
-- Those that serve the workflow come first, then those that were heard of last, so that no number of
-- other workers displaces them. Locks nothing.
--
-- $1 bigint: how many   $2 text: tenant   $3 text: workflow
select w.id, w.name, w.state = 'dying' as is_dying, w.is_draining, w.slots, w.queues, w.workflows, w.versions,
    coalesce(p.lease_until, w.joined_at) as lease_until,
    (
        select count(1)
        from windlass.leases l
        where l.worker_id = w.id and l.claim_seq >= coalesce(p.oldest_claim, 0)
    ) as tasks
from windlass.workers w
left join lateral (
    select x.lease_until, x.oldest_claim
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p on true
where w.state <> 'dead' and coalesce(w.metadata ->> 'windlass.tenant', $2) = $2
order by $3 = any(w.workflows) desc, coalesce(p.lease_until, w.joined_at) desc, uuid_send(w.id)
limit $1;
