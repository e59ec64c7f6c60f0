-- G10.leases-late: leases that ran out are taken away soon
--
-- A task whose worker's lease ran out long ago is still not back in its queue: nobody
-- reaps.
select
    case
        when k.lease_until < {now} - {late_after} then
            format(
                'task %s/%s is leased to worker %s, whose lease ran out at %s', l.run_id, l.idx,
                l.worker_id, k.lease_until
            )
    end as problem
from windlass.leases l
join windlass.pulses k on k.worker_id = l.worker_id
where {scope l.run_id}
