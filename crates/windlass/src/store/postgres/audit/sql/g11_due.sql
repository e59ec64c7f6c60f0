-- G11.due: whatever makes a task wait for a time says for which
--
-- Without it, nobody could tell whether the task went on too early.
select
    case
        when e.detail ->> 'until' is null then
            format('task %s/%s: event %s (%s) does not say until when', e.run_id, e.idx, e.id,
                e.kind)
    end as problem
from windlass.events e
where e.idx is not null and e.to_state = 'scheduled' and {scope e.run_id}
