-- Ends the lives of workers that hold nothing and were not heard of for long.
--
-- That a live worker is not dead is said for the planner: the index has those that are not.
--
-- $1 timestamptz: since when
update windlass.workers w
set state = 'dead'
where w.ctid = any(array(
    select x.ctid
    from windlass.workers x
    where x.state = 'live'
        and x.state <> 'dead'
        and x.lease_until < $1
        and (
            select l.claim_seq
            from windlass.leases l
            where l.worker_id = x.id and l.claim_seq >= x.oldest_claim
            order by l.claim_seq
            limit 1
        ) is null
    order by x.id
    for no key update of x skip locked
))
returning w.id;
