-- When there is something to do for the background duties.
--
-- $1 timestamptz: the time, null for that of the server
-- $2 timestamptz, $3 bigint: from where on to look for timers and for staged runs
select
    c.at,
    least(
        (
            select w.due
            from windlass.timers w
            where w.due >= $2 and w.due < 'infinity'
            order by w.due, w.seq
            limit 1
        ),
        (select d.due from windlass.deadlines d order by d.due limit 1),
        (
            select c.at
            from windlass.staged s
            where s.seq >= $3
            order by s.seq
            limit 1
        )
    ) as promote_at,
    (
        select least(
            min(case when w.state = 'dying' then c.at else p.lease_until end),
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
            ) is not null
    ) as reap_at,
    least(
        (
            select s.due_at
            from windlass.schedules s
            where s.state = 'active' and s.due_at is not null
            order by s.due_at, s.id
            limit 1
        ),
        (
            select c.at + interval '1 second'
            from windlass.schedules s
            where s.state = 'active' and s.queued_at is not null
            order by s.id
            limit 1
        )
    ) as fire_at,
    -- Then nobody is told of runs that were started inside transactions of users.
    current_setting('max_prepared_transactions')::integer > 0 as may_prepare
from (select coalesce($1, clock_timestamp()) as at) c
