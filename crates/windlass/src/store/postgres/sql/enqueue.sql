-- Gives tasks places in their queues: each behind the last one its tenant has in the
-- level, or behind the level's virtual time. The caller has locked the turns.
--
-- Only tags above virtual time are looked at: what was claimed lies below it, and its
-- dead rows may be kept by an old snapshot. The arithmetic is that of
-- `windlass_core::next_tag`, written out: a function of its own costs ten times as much.
--
-- $1 uuid[], $2 int[]: the tasks   $3 int[]: definitions   $4 int[]: routes
-- $5 int[]: levels   $6 int[]: tenants   $7 bigint[]: fences   $8 int[]: attempts
-- $9 int[]: the most attempts   $10 bigint[], $11 text[]: the newest answers
with new as (
    select
        k.run_id, k.idx, k.definition_id, k.route_id, k.level_id, k.tenant_id,
        k.fence, k.attempt, k.max_attempts, k.answered_fence, k.answered_verb, k.n,
        row_number() over (partition by k.level_id, k.tenant_id order by k.n) as turn
    from unnest(
        $1::uuid[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[],
        $7::bigint[], $8::integer[], $9::integer[], $10::bigint[], $11::text[]
    ) with ordinality as k (
        run_id, idx, definition_id, route_id, level_id, tenant_id,
        fence, attempt, max_attempts, answered_fence, answered_verb, n
    )
),
placed as (
    select new.*,
        max(f.start + f.spacing - (((f.start - f.phase) % f.spacing) + f.spacing) % f.spacing)
            over turns + (new.turn - 1) * max(f.spacing) over turns as tag
    from new
    left join lateral (
        select
            t.id as phase,
            (1048576 / t.weight)::bigint as spacing,
            coalesce(
                (
                    select q.tag
                    from windlass.ready q
                    where q.level_id = new.level_id and q.tenant_id = new.tenant_id
                        and q.tag > v.tag
                    order by q.tag desc
                    limit 1
                ), v.tag) as start
        from windlass.tenants t
        cross join (
            select coalesce(
                (
                    select m.tag
                    from windlass.marks m
                    where m.level_id = new.level_id
                    order by m.tag desc
                    limit 1
                ), 0) as tag
            offset 0
        ) v
        where t.id = new.tenant_id and new.turn = 1
        offset 0
    ) f on true
    window turns as (partition by new.level_id, new.tenant_id)
)
insert into windlass.ready (
    run_id, idx, definition_id, route_id, level_id, tenant_id, tag, seq,
    fence, attempt, max_attempts, answered_fence, answered_verb
)
select
    p.run_id, p.idx, p.definition_id, p.route_id, p.level_id, p.tenant_id, p.tag,
    nextval('windlass.ready_seq'),
    p.fence, p.attempt, p.max_attempts, p.answered_fence, p.answered_verb
from (select placed.* from placed order by placed.n) p;
