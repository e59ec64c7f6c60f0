-- G18.place: a task stands in the queue, priority and route of its definition and run
--
-- The place carries copies of what the run and the definition say. A task in another
-- tenant's turns, another level or another workflow's route is claimed out of order, by a
-- worker that has no handler for it, or never. What comes out of definitions is
-- materialized, as in G7.parents.
with specs as materialized (
    {specs}
)
select
    case
        when q.definition_id <> r.definition_id then
            format('task %s/%s stands under definition %s, its run has %s', q.run_id, q.idx,
                q.definition_id, r.definition_id)
        when n.name is distinct from r.tenant then
            format('task %s/%s of tenant "%s" stands in the turns of "%s"', q.run_id, q.idx,
                r.tenant, coalesce(n.name, 'nobody'))
        when (v.queue, v.priority) is distinct from (
            s.spec ->> 'queue',
            greatest(-100, least(100, r.priority + (s.spec ->> 'priority')::integer))
        ) then
            format(
                'task %s/%s stands in queue "%s" with priority %s, it belongs to queue "%s", %s',
                q.run_id, q.idx, coalesce(v.queue, 'none'), v.priority, s.spec ->> 'queue',
                greatest(-100, least(100, r.priority + (s.spec ->> 'priority')::integer))
            )
        when (a.level_id, a.workflow, a.version)
            is distinct from (q.level_id, r.workflow, r.version)
        then
            format('task %s/%s stands in route %s, which is not one of workflow "%s" version %s',
                q.run_id, q.idx, q.route_id, r.workflow, r.version)
    end as problem
from (
    select q.run_id, q.idx, q.definition_id, q.route_id, q.level_id, q.tenant_id
    from windlass.ready q
    union all
    select l.run_id, l.idx, r.definition_id, l.route_id, a.level_id, t.id
    from windlass.leases l
    join windlass.runs r on r.id = l.run_id
    left join windlass.routes a on a.id = l.route_id
    left join windlass.tenants t on t.name = r.tenant
) q
join windlass.runs r on r.id = q.run_id
join specs s on s.definition_id = r.definition_id and s.idx = q.idx
left join windlass.tenants n on n.id = q.tenant_id
left join windlass.levels v on v.id = q.level_id
left join windlass.routes a on a.id = q.route_id
where {scope q.run_id}
