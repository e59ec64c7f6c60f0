-- G2.edges: every move of a task is in the table of transitions
--
-- The list below is made from the table that the engine moves tasks by. An event whose
-- kind, state before and state after are not in it is a move that nothing in the engine
-- makes.
select
    case
        when g.kind is null then
            format(
                'task %s/%s: event %s is %s: %s → %s', e.run_id, e.idx, e.id, e.kind,
                coalesce(e.from_state, 'nothing'), e.to_state
            )
    end as problem
from windlass.events e
left join (
    values
        {task_edges}
) g (kind, from_state, to_state)
    on g.kind = e.kind and g.from_state = e.from_state and g.to_state = e.to_state
where e.idx is not null and {scope e.run_id}
