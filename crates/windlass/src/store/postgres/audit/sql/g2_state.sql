-- G2.state: a task is in the state that its history leads to
--
-- Each change of state is written down in its own transaction. A stored state that is not
-- the one of the last event was changed without a word, or an event tells of a change that
-- did not happen.
select
    case
        when t.state <> coalesce(e.to_state, 'pending') then
            format(
                'task %s/%s is %s, its last event says %s', t.run_id, t.idx, t.state,
                coalesce(e.to_state, 'nothing')
            )
    end as problem
from windlass.task_states t
left join (
    select distinct on (e.run_id, e.idx) e.run_id, e.idx, e.to_state
    from windlass.events e
    where e.idx is not null and {scope e.run_id}
    order by e.run_id, e.idx, e.id desc
) e on e.run_id = t.run_id and e.idx = t.idx
where t.state is not null and {scope t.run_id}
