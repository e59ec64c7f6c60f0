-- Gives tasks places in their queues: each behind the last one its tenant has in the
-- level, or behind the level's virtual time. The caller has locked the turns.
--
-- Only tags above virtual time are looked at: what was claimed lies below it, and its
-- dead rows may be kept by an old snapshot.
--
-- $1 uuid[], $2 int[]: the tasks   $3 int[]: definitions   $4 int[]: lanes
-- $5 int[]: levels   $6 int[]: tenants   $7 bigint[]: fences   $8 int[]: attempts
-- $9 int[]: the most attempts   $10 bigint[], $11 text[]: the newest answers
with new as (
    select k.*, row_number() over (partition by k.level_id, k.tenant_id order by k.n) as turn
    from unnest(
        $1::uuid[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[],
        $7::bigint[], $8::integer[], $9::integer[], $10::bigint[], $11::text[]
    ) with ordinality as k (
        run_id, idx, definition_id, lane_id, level_id, tenant_id,
        fence, attempt, max_attempts, answered_fence, answered_verb, n
    )
),
virtual_times as (
    select
        g.level_id,
        g.tenant_id,
        coalesce(
            (select m.tag from windlass.marks m
             where m.level_id = g.level_id order by m.tag desc limit 1), 0) as tag
    from (select distinct level_id, tenant_id from new) g
),
turns as (
    select
        v.level_id,
        v.tenant_id,
        (1048576 / t.weight)::bigint as spacing,
        windlass.next_tag(
            (select q.tag from windlass.ready q
             where q.level_id = v.level_id and q.tenant_id = v.tenant_id and q.tag > v.tag
             order by q.tag desc limit 1),
            v.tag, t.weight, t.id) as first_tag
    from virtual_times v
    join windlass.tenants t on t.id = v.tenant_id
)
insert into windlass.ready (
    run_id, idx, definition_id, lane_id, level_id, tenant_id, tag, seq,
    fence, attempt, max_attempts, answered_fence, answered_verb
)
select
    p.run_id, p.idx, p.definition_id, p.lane_id, p.level_id, p.tenant_id, p.tag,
    nextval('windlass.ready_seq'),
    p.fence, p.attempt, p.max_attempts, p.answered_fence, p.answered_verb
from (
    select new.*, turns.first_tag + (new.turn - 1) * turns.spacing as tag
    from new
    join turns on turns.level_id = new.level_id and turns.tenant_id = new.tenant_id
    order by new.n
) p;
