-- engine.unserved: every ready task has a registered worker
--
-- A worker registers its queues and workflow versions, and sends a heartbeat every 20 seconds.
-- Reads one row of each route: tasks of one queue, priority, workflow and version.
select
    'warning' as severity,
    format(
        'workflow %s version %s has ready tasks in queue %s, but no live worker is registered for them',
        to_json(r.workflow), r.version, to_json(r.queue)
    ) as problem,
    case
        when exists (
            select
            from windlass.workers w
            cross join lateral (
                select x.lease_until
                from windlass.pulses x
                where x.worker_id = w.id
                order by x.number desc
                limit 1
            ) p
            where w.state <> 'dead'
                and w.state = 'live'
                and r.workflow = any(w.workflows)
                and p.lease_until > clock_timestamp() - {silent_max}
        ) then 'the live workers are registered for other versions or serve other queues'
        else 'no live worker is registered for this workflow'
    end as cause,
    'start a worker that registers it and serves the queue; windlass workers lists the live ones'
        as remedy
from (
    select distinct t.workflow, t.version, v.queue
    from windlass.routes t
    join windlass.levels v on v.id = t.level_id
    where (
            select q.seq
            from windlass.ready q
            where q.route_id = t.id
            order by q.tag, q.seq
            limit 1
        ) is not null
) r
where not exists (
    select
    from windlass.workers w
    cross join lateral unnest(w.workflows, w.versions) as h (workflow, version)
    cross join lateral (
        select x.lease_until
        from windlass.pulses x
        where x.worker_id = w.id
        order by x.number desc
        limit 1
    ) p
    where w.state <> 'dead'
        and w.state = 'live'
        and not w.is_draining
        and r.queue = any(w.queues)
        and h.workflow = r.workflow
        and h.version = r.version
        and p.lease_until > clock_timestamp() - {silent_max}
)
