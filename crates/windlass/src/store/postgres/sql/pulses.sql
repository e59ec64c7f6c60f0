-- The last signs of life of workers, and of each the oldest claim of which it still holds a
-- task, if it holds any, and how many tasks it holds.
--
-- $1 uuid[]: the workers, which the caller has locked
select p.worker_id, p.number, p.lease_until, p.last_claim, p.oldest_claim,
    h.oldest_lease, h.held
from unnest($1) w (id)
cross join lateral (
    select x.worker_id, x.number, x.lease_until, x.last_claim, x.oldest_claim
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p
cross join lateral (
    select min(l.claim_seq) as oldest_lease, count(*) as held
    from windlass.leases l
    where l.worker_id = p.worker_id and l.claim_seq >= p.oldest_claim
) h;
