-- Adds what came into levels and what left them to their counts. Locks the changes that it adds
-- up, and then the counts of their levels.
--
-- $1 bigint: from which change on to look   $2 bigint: the most changes
-- $3 timestamptz: the time
with gone as (
    delete from windlass.queue_changes c
    where c.ctid = any(array(
        select x.ctid
        from windlass.queue_changes x
        where x.seq >= $1
        order by x.seq
        limit $2
    ))
    returning c.seq, c.level_id, c.came, c.went
),
added as (
    insert into windlass.queue_counts as q (level_id, came, went, changed_at)
    select g.level_id, sum(g.came), sum(g.went), $3
    from gone g
    group by g.level_id
    order by g.level_id
    on conflict (level_id) do update
    set came = q.came + excluded.came, went = q.went + excluded.went,
        changed_at = excluded.changed_at
)
select count(*) as moved, max(g.seq) as last from gone g;
