-- Gives tasks of one tenant, route and definition that are alike their places in a queue, as
-- `enqueue.sql` does. That is what a start and most finishes enqueue.
--
-- $1 uuid[], $2 int[]: the tasks   $3 int: their definition   $4 int: the route   $5 int: the level
-- $6 int: the tenant   $7 bigint: the fence   $8 int: the attempt   $9 int: the most attempts
-- $10 bigint, $11 text: the newest answer
with turn as materialized (
    select
        t.id as phase,
        (1048576 / t.weight)::bigint as spacing,
        coalesce(
            (
                select q.tag
                from windlass.ready q
                where q.level_id = $5 and q.tenant_id = $6 and q.tag > v.tag
                order by q.tag desc
                limit 1
            ), v.tag) as start
    from windlass.tenants t
    cross join (
        select coalesce(
            (
                select m.tag from windlass.marks m where m.level_id = $5 order by m.tag desc limit 1
            ), 0) as tag
        offset 0
    ) v
    where t.id = $6
)
insert into windlass.ready (
    run_id, idx, definition_id, route_id, level_id, tenant_id, tag, seq,
    fence, attempt, max_attempts, answered_fence, answered_verb
)
select
    k.run_id, k.idx, $3, $4, $5, $6,
    f.start + f.spacing * k.n - (((f.start - f.phase) % f.spacing) + f.spacing) % f.spacing,
    nextval('windlass.ready_seq'),
    $7, $8, $9, $10, $11
from unnest($1::uuid[], $2::integer[]) with ordinality as k (run_id, idx, n)
left join turn f on true;
