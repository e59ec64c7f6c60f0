-- Ends the lives of workers that hold nothing and were not heard of for long.
--
-- $1 timestamptz: since when
update windlass.workers w
set state = 'dead'
where w.id in (
    select w2.id
    from windlass.workers w2
    where w2.state = 'live'
        and w2.lease_until < $1
        and not exists (select from windlass.leases l where l.worker_id = w2.id)
    order by w2.id
    for no key update of w2 skip locked
)
returning w.id;
