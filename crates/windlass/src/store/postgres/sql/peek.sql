-- Whether a worker that expects nothing could be given something: whether it is alive and may
-- claim, whether anything stands in its routes, and whether there are routes it does not know of.
--
-- $1 uuid: the worker   $2 int[]: routes   $3 bigint[]: from which tag on to look in each
-- $4 bigint: how many routes are known
select
    coalesce((select w.state = 'live' from windlass.workers w where w.id = $1), false) as is_live,
    coalesce((
        select p.last_claim
        from windlass.pulses p
        where p.worker_id = $1
        order by p.number desc
        limit 1
    ), 0) as last_claim,
    exists (
        select
        from unnest($2::integer[], $3::bigint[]) as k (route_id, floor)
        cross join lateral (
            select 1
            from windlass.ready r
            where r.route_id = k.route_id and r.tag >= k.floor
            order by r.tag, r.seq
            limit 1
        ) q
    ) as has_tasks,
    (select count(*) from windlass.routes) > $4 as has_routes;
