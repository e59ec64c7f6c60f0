-- When the next lease of a worker that holds tasks ends; a dying worker's has. And when the
-- next visibility timeout passes.
--
-- $1 timestamptz: the time
select least(
    min(case when w.state = 'dying' then $1 else p.lease_until end),
    (
        select l.take_back_at
        from windlass.leases l
        where l.take_back_at is not null
        order by l.take_back_at
        limit 1
    ))
from windlass.workers w
cross join lateral (
    select x.lease_until, x.oldest_claim
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p
where w.state <> 'dead'
    and (
        select l.claim_seq
        from windlass.leases l
        where l.worker_id = w.id and l.claim_seq >= p.oldest_claim
        order by l.claim_seq
        limit 1
    ) is not null;
