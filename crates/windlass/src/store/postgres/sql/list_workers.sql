-- A page of workers, the newest first, each with its last sign of life and how many tasks it
-- has.
--
-- $1 boolean: also the dead   $2 timestamptz, $3 uuid: where the previous page ended, null for
-- the first   $4 bigint: how many   $5 timestamptz: the time, null for that of the clock
-- $6 bigint: how many microseconds after its lease a worker is silent
select w.id, w.name, w.slots, (extract(epoch from w.lease) * 1000000)::bigint as lease_micros,
    w.state, w.is_draining, w.host, w.pid, w.version, w.queues, w.workflows, w.versions,
    w.metadata::text, w.joined_at, w.ended_at, p.seen_at,
    coalesce(
        p.lease_until + $6 * interval '1 microsecond' <= coalesce($5, clock_timestamp()), false
    ) as is_silent,
    (
        select count(*)
        from windlass.leases l
        where l.worker_id = w.id and l.claim_seq >= coalesce(p.oldest_claim, 0)
    ) as tasks
from windlass.workers w
left join lateral (
    select x.seen_at, x.lease_until, x.oldest_claim
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p on true
where ($1 or w.state <> 'dead')
    and (w.joined_at, uuid_send(w.id))
        < (coalesce($2::timestamptz, 'infinity'), coalesce(uuid_send($3::uuid), ''))
order by w.joined_at desc, uuid_send(w.id) desc
limit $4;
