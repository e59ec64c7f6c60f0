-- How many tasks stand before a place in a queue: of its tenant, and of anyone. What has a higher
-- priority does, and what has the same and a smaller tag, or the same tag and came before.
--
-- $1 text: the queue   $2 int: the priority   $3 int: the tenant   $4 bigint, $5 bigint: the place
-- $6 bigint: where to stop counting
select
    (
        select count(1)
        from (
            select
            from (
                select v.id, v.priority
                from windlass.levels v
                where v.queue = $1 and v.priority >= $2
                offset 0
            ) v
            cross join lateral (
                select case when v.priority > $2 then 9223372036854775807 else $4 end as tag
            ) m
            cross join lateral (
                select
                from windlass.ready q
                where q.level_id = v.id and q.tenant_id = $3 and q.tag <= m.tag
                    and (v.priority > $2 or (q.tag, q.seq) < ($4, $5))
                order by q.tag
                limit $6
            ) b
            limit $6
        ) b
    ) as own,
    (
        select count(1)
        from (
            select
            from (
                select v.id, v.priority
                from windlass.levels v
                where v.queue = $1 and v.priority >= $2
                offset 0
            ) v
            cross join lateral (
                select t.id from windlass.routes t where t.level_id = v.id offset 0
            ) t
            cross join lateral (
                select case when v.priority > $2 then 9223372036854775807 else $4 end as tag
            ) m
            cross join lateral (
                select
                from windlass.ready q
                where q.route_id = t.id and q.tag <= m.tag
                    and (v.priority > $2 or (q.tag, q.seq) < ($4, $5))
                order by q.tag, q.seq
                limit $6
            ) b
            limit $6
        ) b
    ) as everyone;
