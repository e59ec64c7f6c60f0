-- Locks the workers whose lease ran out while they held tasks, or who were found dead and still
-- have some, and passes over those that others have. What is seen of their leases may be
-- over by the time they are locked: the caller looks again.
--
-- $1 timestamptz: the time
select w.id, w.state
from windlass.workers w
cross join lateral (
    select x.lease_until, x.oldest_claim
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p
where w.state <> 'dead'
    and (w.state = 'dying'
        or p.lease_until <= $1
        and (
            select l.claim_seq
            from windlass.leases l
            where l.worker_id = w.id and l.claim_seq >= p.oldest_claim
            order by l.claim_seq
            limit 1
        ) is not null)
order by w.id
for no key update of w skip locked;
