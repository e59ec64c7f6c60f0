-- Locks the workers whose lease ran out while they held tasks, or who were found dead and still
-- have some, and passes over those that others have.
--
-- $1 timestamptz: the time
select w.id, w.lease_until, w.last_claim, w.oldest_claim
from windlass.workers w
where w.state <> 'dead'
    and (w.state = 'dying'
        or w.lease_until <= $1
        and (
            select l.claim_seq
            from windlass.leases l
            where l.worker_id = w.id and l.claim_seq >= w.oldest_claim
            order by l.claim_seq
            limit 1
        ) is not null)
order by w.id
for no key update of w skip locked;
