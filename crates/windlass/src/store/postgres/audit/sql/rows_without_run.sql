-- rows.without-run: whatever belongs to a run or a task belongs to one that exists
--
-- The hot tables have no foreign keys. A row whose run is gone is left over from something
-- that was done by half. A run whose definition is gone is found by rows.definition-of-run.
select
    case
        when r.id is null then format('%s has a row of run %s, which does not exist', x.relation,
            x.run_id)
        when x.idx is not null and f.id is not null and d.idx is null then
            format('%s has a row of task %s/%s, which does not exist', x.relation, x.run_id, x.idx)
    end as problem
from (
    select 'task_rows' as relation, t.run_id, t.idx from windlass.task_rows t
    union all
    select 'staged', s.run_id, null::integer from windlass.staged s
    union all
    select distinct 'history', e.run_id, e.idx from windlass.events e
    union all
    select 'dead_letters', d.run_id, d.idx from windlass.dead_letters d
    union all
    select 'notes', n.run_id, n.idx from windlass.notes n
    union all
    select 'checkpoints', c.run_id, c.idx from windlass.checkpoints c
    union all
    select distinct 'steps', s.run_id, s.idx from windlass.steps s
    union all
    select distinct 'signals', g.run_id, null::integer from windlass.signals g
    union all
    select 'key_waiters', w.run_id, w.idx from windlass.key_waiters w
    union all
    select 'children', c.run_id, c.idx from windlass.children c
    union all
    select 'children', c.child_id, null from windlass.children c
    union all
    select 'deadlines', d.run_id, nullif(d.idx, -1) from windlass.deadlines d
    union all
    select 'lane_places', p.run_id, p.idx from windlass.lane_places p
    union all
    select 'ready', q.run_id, q.idx from windlass.ready q
    union all
    select 'leases', l.run_id, l.idx from windlass.leases l
    union all
    select 'timers', w.run_id, w.idx from windlass.timers w
) x
left join windlass.runs r on r.id = x.run_id
left join windlass.definitions f on f.id = r.definition_id
left join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = x.idx
