-- Leases chosen ready tasks of one tenant to workers: off the queue and leased, in one statement.
--
-- The virtual time of their levels stays where it is: the tenant is served out of turn, and whoever
-- comes next must not stand behind it.
--
-- It takes nothing outside of a transaction. Locks the rows of `ready` that it takes and passes over
-- those that others have.
--
-- $1 uuid[], $2 int[]: the tasks   $3 int: the tenant   $4 int[]: the routes that are served
-- $5 uuid[]: the workers, which the caller has locked: one for each task, the first one for those
-- beyond   $6 bigint[]: the numbers of their claims   $7 timestamptz: the time, null for that of the
-- clock, which is read when a task is taken
with picked as materialized (
    select q.place
    from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
    cross join lateral (
        select r.ctid as place
        from windlass.ready r
        where r.run_id = k.run_id and r.idx = k.idx
            and r.tenant_id = $3 and r.route_id = any($4::integer[])
        for update skip locked
    ) q
    where current_setting('transaction_deferrable') = 'on'
),
taken as (
    delete from windlass.ready r
    where r.ctid = any(array(select picked.place from picked))
    returning r.run_id, r.idx, r.definition_id, r.route_id, r.tenant_id, r.tag, r.seq,
        r.fence + 1 as fence, r.attempt + 1 as attempt, r.max_attempts,
        r.answered_fence, r.answered_verb, coalesce($7, clock_timestamp()) as at
),
handed as materialized (
    select t.*, coalesce(($5::uuid[])[t.place], ($5::uuid[])[1]) as worker_id,
        coalesce(($6::bigint[])[t.place], ($6::bigint[])[1]) as claim_seq
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
)
select h.run_id, h.idx, h.definition_id, h.route_id, h.tenant_id, h.tag, h.seq, h.fence, h.attempt,
    h.at, h.worker_id
from handed h;
