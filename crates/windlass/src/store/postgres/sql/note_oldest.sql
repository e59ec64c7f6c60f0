-- Notes of each level since when the task is ready that is so for the longest time.
--
-- One look for each tenant that has something ready, up to 1,000 of a level: the first of a
-- tenant's own is its oldest, and places are numbered by age. When that task became ready is in
-- the history of its run, as in the view `queue_lag`; one that was given back keeps its place and
-- is ready since then. Looks at levels that have something, and writes only what has changed.
update windlass.queue_counts q
set oldest_at = o.at
from (
    select k.level_id, coalesce(h.at, r.created_at) as at
    from windlass.queue_counts k
    left join lateral (
        with recursive firsts (tenant_id, seq, run_id, idx, n) as (
            (
                select y.tenant_id, y.seq, y.run_id, y.idx, 1
                from windlass.ready y
                where y.level_id = k.level_id
                order by y.tenant_id, y.tag
                limit 1
            )
            union all
            select x.tenant_id, x.seq, x.run_id, x.idx, f.n + 1
            from firsts f
            cross join lateral (
                select y.tenant_id, y.seq, y.run_id, y.idx
                from windlass.ready y
                where y.level_id = k.level_id and y.tenant_id > f.tenant_id
                order by y.tenant_id, y.tag
                limit 1
            ) x
            where f.n < 1000
        )
        select f.run_id, f.idx from firsts f order by f.seq limit 1
    ) a on true
    left join windlass.runs r on r.id = a.run_id
    left join lateral (
        select e.at
        from (
            select x.id, x.at, x.lines
            from windlass.history x
            where x.run_id = a.run_id
            order by x.id desc
            limit 100
        ) e
        where E'\n' || e.lines ~ format(E'\n%s(\x01| [a-z_]+ [a-z]+ ready )', a.idx)
        order by e.id desc
        limit 1
    ) h on true
    where k.came > k.went or k.oldest_at is not null
) o
where q.level_id = o.level_id and q.oldest_at is distinct from o.at;
