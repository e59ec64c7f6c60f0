-- engine.limits: no limit key is blocked by a task that has ended
--
-- A slot of a limit key is held by a task that is ready or runs, or by one that failed and halts
-- its stream. Only places that hold a slot are looked at, by the index of their key; definitions
-- are read for failed tasks only.
select
    'critical' as severity,
    format(
        'limit %s, key %s: task %s/%s has %s and still holds a slot%s', to_json(m.name),
        to_json(l.key), p.run_id, p.idx, t.state,
        case when l.last > l.served then ', which other tasks wait for' else '' end
    ) as problem,
    'the slot was not released when the task ended, so tasks that wait for the key are not started'
        as cause,
    'run windlass audit --repair --dry-run, then windlass audit --repair' as remedy
from (
    select distinct on (l.limit_id, l.tenant_id, l.key)
        l.limit_id, l.tenant_id, l.key, l.held, l.served, l.last
    from windlass.lanes l
    order by l.limit_id, l.tenant_id, l.key, l.number desc
) l
cross join lateral (
    select p.run_id, p.idx
    from windlass.lane_places p
    where p.limit_id = l.limit_id and p.tenant_id = l.tenant_id and p.key = l.key
        and p.seq <= l.served and p.superseded is distinct from 'waiting'
    order by p.seq
    limit l.held
) p
cross join lateral (
    select t.state
    from windlass.task_rows t
    where t.run_id = p.run_id and t.idx = p.idx
        and t.state in ('succeeded', 'failed', 'cancelled', 'skipped')
    offset 0
) t
cross join lateral (
    select r.definition_id, r.state from windlass.runs r where r.id = p.run_id offset 0
) r
join windlass.limits m on m.id = l.limit_id
where l.held > 0
    and not (
        t.state = 'failed' and r.state <> 'cancelled' and exists (
            select
            from windlass.definitions d
            cross join lateral json_array_elements(d.body -> 'tasks' -> p.idx -> 'limits') k (one)
            where d.id = r.definition_id and (k.one ->> 'halts')::boolean
        )
    )
