-- Leases ready tasks to workers: off the queue, leased, and the virtual time moved, in one
-- statement.
--
-- It is sent with the beginning of the transaction, and takes nothing if there is none.
--
-- Locks the rows of `ready` that it takes and passes over those that others have. It deletes
-- by physical place, which cannot turn into a scan of the table.
--
-- A new mark takes the place of the first worker's last one, as a row of its own: looking for the
-- largest finds it first, before the dead ones that an old snapshot keeps. The comparison of
-- rows is one that only the primary key can serve.
--
-- $1 int[]: routes   $2 bigint[]: from which tag on to look in each   $3 bigint[]: how many to
-- take of each   $4 uuid[]: the workers, which the caller has locked: one for each task, the first
-- one for those beyond   $5 bigint[]: the numbers of their claims   $6 timestamptz: the time, null for that of the clock. It is read when a task is
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
handed as materialized (
    select t.*, coalesce(($4::uuid[])[t.place], ($4::uuid[])[1]) as worker_id,
        coalesce(($5::bigint[])[t.place], ($5::bigint[])[1]) as claim_seq
    from (select n.*, (row_number() over ())::integer as place from taken n) t
),
leased as (
    insert into windlass.leases (
        run_id, idx, worker_id, claim_seq, route_id, tag, seq, fence, attempt, max_attempts,
        answered_fence, answered_verb
    )
    select h.run_id, h.idx, h.worker_id, h.claim_seq, h.route_id, h.tag, h.seq, h.fence, h.attempt,
        h.max_attempts, h.answered_fence, h.answered_verb
    from handed h
),
moved as materialized (
    select n.level_id, n.tag, p.place
    from (select h.level_id, max(h.tag) as tag from handed h group by h.level_id) n
    left join lateral (
        select m.ctid as place, m.tag
        from windlass.marks m
        where (m.worker_id, m.level_id, m.tag) >= (($4::uuid[])[1], n.level_id, -9223372036854775808)
            and (m.worker_id, m.level_id, m.tag) <= (($4::uuid[])[1], n.level_id, 9223372036854775807)
        order by m.worker_id desc, m.level_id desc, m.tag desc
        limit 1
    ) p on true
    where p.tag is null or p.tag < n.tag
),
marked as (
    insert into windlass.marks (level_id, worker_id, tag)
    select m.level_id, ($4::uuid[])[1], m.tag from moved m
),
unmarked as (
    delete from windlass.marks
    where ctid = any(array(select m.place from moved m where m.place is not null))
)
select h.run_id, h.idx, h.definition_id, h.route_id, h.tenant_id, h.tag, h.seq, h.fence, h.attempt,
    h.at, h.worker_id
from handed h;
