-- G2.while-running: tasks move only while their run is running
--
-- For every event of a task, the last event of its run before it is looked up. A task that
-- moved before its run was started or after it had ended was moved by someone who had not
-- locked the run.
select
    case
        when p.to_state is distinct from 'running' then
            format(
                'task %s/%s: event %s (%s) came while the run was %s', c.run_id, c.idx, c.id,
                c.kind, coalesce(p.to_state, 'not started')
            )
    end as problem
from (
    select
        e.run_id, e.idx, e.id, e.kind,
        max(e.id) filter (where e.idx is null)
            over (partition by e.run_id order by e.id) as run_event
    from windlass.events e
    where {scope e.run_id}
) c
left join windlass.events p on p.run_id = c.run_id and p.id = c.run_event
where c.idx is not null
