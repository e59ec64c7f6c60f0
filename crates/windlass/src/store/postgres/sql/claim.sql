-- Leases ready tasks to a worker: off the queue, leased, and the virtual time moved, in one
-- statement.
--
-- It is sent with the beginning of the transaction, and takes nothing if there is none.
--
-- Locks the rows of `ready` that it takes and passes over those that others have. It deletes
-- by physical place, which cannot turn into a scan of the table.
--
-- A new mark takes the place of the worker's last one, as a row of its own: looking for the
-- largest finds it first, before the dead ones that an old snapshot keeps. The comparison of
-- rows is one that only the primary key can serve.
--
-- $1 int[]: routes   $2 bigint[]: from which tag on to look in each   $3 bigint[]: how many to
-- take of each   $4 uuid: the worker, which the caller has locked   $5 bigint: the number of
-- the claim   $6 timestamptz: the time, null for that of the clock. It is read when a task is
-- taken, which is after whatever made it ready was committed.
with picked as materialized (
    select q.place
    from unnest($1::integer[], $2::bigint[], $3::bigint[]) as k (route_id, floor, wanted)
    cross join lateral (
        select r.ctid as place
        from windlass.ready r
        where r.route_id = k.route_id and r.tag >= k.floor
        order by r.tag, r.seq
        limit k.wanted
        for update skip locked
    ) q
    where current_setting('transaction_deferrable') = 'on'
),
taken as (
    delete from windlass.ready r
    where r.ctid = any(array(select picked.place from picked))
    returning r.run_id, r.idx, r.definition_id, r.route_id, r.level_id, r.tenant_id, r.tag, r.seq,
        r.fence + 1 as fence, r.attempt + 1 as attempt, r.max_attempts,
        r.answered_fence, r.answered_verb, coalesce($6, clock_timestamp()) as at
),
leased as (
    insert into windlass.leases (
        run_id, idx, worker_id, claim_seq, route_id, tag, seq, fence, attempt, max_attempts,
        answered_fence, answered_verb
    )
    select t.run_id, t.idx, $4, $5, t.route_id, t.tag, t.seq, t.fence, t.attempt, t.max_attempts,
        t.answered_fence, t.answered_verb
    from taken t
),
moved as materialized (
    select n.level_id, n.tag, p.place
    from (select t.level_id, max(t.tag) as tag from taken t group by t.level_id) n
    left join lateral (
        select m.ctid as place, m.tag
        from windlass.marks m
        where (m.worker_id, m.level_id, m.tag) >= ($4, n.level_id, -9223372036854775808)
            and (m.worker_id, m.level_id, m.tag) <= ($4, n.level_id, 9223372036854775807)
        order by m.worker_id desc, m.level_id desc, m.tag desc
        limit 1
    ) p on true
    where p.tag is null or p.tag < n.tag
),
marked as (
    insert into windlass.marks (level_id, worker_id, tag)
    select m.level_id, $4, m.tag from moved m
),
unmarked as (
    delete from windlass.marks
    where ctid = any(array(select m.place from moved m where m.place is not null))
)
select t.run_id, t.idx, t.definition_id, t.route_id, t.tenant_id, t.tag, t.seq, t.fence, t.attempt,
    t.at
from taken t;
