-- Workers that are not dead: what they serve, and how much they have to do.
--
-- $1 bigint: how many
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
where w.state <> 'dead'
limit $1;
