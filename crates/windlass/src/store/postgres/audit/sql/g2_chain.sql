-- G2.chain: every event of a task begins in the state that the one before led to
--
-- A task begins pending. If an event starts from another state than its predecessor led
-- to, a move was made without being written down, or two sessions moved the task from the
-- same state.
select
    case
        when c.from_state is distinct from c.before then
            format(
                'task %s/%s: event %s (%s) is from %s, the task was %s', c.run_id, c.idx, c.id,
                c.kind, coalesce(c.from_state, 'nothing'), c.before
            )
    end as problem
from (
    select
        e.run_id, e.idx, e.id, e.kind, e.from_state,
        lag(e.to_state, 1, 'pending') over (partition by e.run_id, e.idx order by e.id) as before
    from windlass.events e
    where e.idx is not null and {scope e.run_id}
) c
