-- Locks workers that hold nothing and were not heard of for long, and passes over those that
-- others have. What is seen of them may be over by the time they are locked: the caller looks
-- again.
--
-- That a live worker is not dead is said for the planner: the index has those that are not.
--
-- $1 timestamptz: since when
select w.id, w.state
from windlass.workers w
cross join lateral (
    select x.lease_until, x.oldest_claim
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p
where w.state = 'live'
    and w.state <> 'dead'
    and p.lease_until < $1
    and (
        select l.claim_seq
        from windlass.leases l
        where l.worker_id = w.id and l.claim_seq >= p.oldest_claim
        order by l.claim_seq
        limit 1
    ) is null
order by w.id
for no key update of w skip locked;
