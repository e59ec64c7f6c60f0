-- engine.unserved: whatever is ready has a worker that can run it
--
-- A worker says which queues it serves and which versions of which workflows it has handlers
-- for, and that it lives every 20 seconds. One look at each route: tasks of one queue,
-- priority, workflow and version.
select
    'warning' as severity,
    format(
        'tasks of workflow %s version %s wait in queue %s, and no live worker serves them',
        to_json(r.workflow), r.version, to_json(r.queue)
    ) as problem,
    case
        when exists (
            select from windlass.workers w
            where w.state <> 'dead' and w.state = 'live' and r.workflow = any(w.workflows)
        ) then 'there are workers with handlers for other versions, or that serve other queues'
        else 'no worker that is there has a handler for it'
    end as cause,
    'start a worker that registers it and serves the queue; windlass workers shows what there is'
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
