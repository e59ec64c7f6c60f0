-- Shows a worker as dying in windlass.worker_load if it was not heard of for a minute after its lease,
-- as `windlass workers` and the doctor do. It was shown as live until the reaper found it.
create or replace view windlass.worker_load as
select
    w.id as worker_id,
    w.name as worker,
    w.host,
    w.pid,
    case
        when w.state = 'live' and p.lease_until + interval '60 s' <= clock_timestamp() then 'dying'
        when w.state = 'live' and w.is_draining then 'draining'
        else w.state
    end as state,
    w.queues,
    w.slots,
    c.tasks,
    round(100.0 * c.tasks / greatest(w.slots, 1))::integer as percent,
    w.joined_at,
    p.seen_at,
    p.lease_until
from windlass.workers w
left join lateral (
    select x.seen_at, x.lease_until, x.oldest_claim
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p on true
cross join lateral (
    select count(*) as tasks
    from windlass.leases l
    where l.worker_id = w.id and l.claim_seq >= coalesce(p.oldest_claim, 0)
) c
where w.state <> 'dead';
