-- G2.run-edges: every move of a run is in the table of transitions
--
-- The list below is made from the table that the engine moves runs by, and its start.
select
    case
        when g.kind is null then
            format(
                'run %s: event %s is %s: %s → %s', e.run_id, e.id, e.kind,
                coalesce(e.from_state, 'nothing'), e.to_state
            )
    end as problem
from windlass.events e
left join (
    values
        {run_edges}
) g (kind, from_state, to_state)
    on g.kind = e.kind
    and g.from_state is not distinct from e.from_state
    and g.to_state = e.to_state
where e.idx is null and {scope e.run_id}
