-- G8.verdict: a run that has ended has no open task, and its state follows from its tasks
--
-- Cancelled if a task was cancelled, else failed if a task failed, else succeeded. A task
-- that is still open in a run that has ended runs for nobody, or waits for ever.
select
    case
        when c.open > 0 then
            format('run %s is %s and has %s tasks that have not ended', c.run_id, c.state, c.open)
        when c.state <> c.verdict then
            format('run %s is %s, its tasks say %s', c.run_id, c.state, c.verdict)
    end as problem
from (
    select
        t.run_id, r.state,
        count(1) filter (where t.state in ('pending', 'active')) as open,
        case
            when bool_or(t.state = 'cancelled') then 'cancelled'
            when bool_or(t.state = 'failed') then 'failed'
            else 'succeeded'
        end as verdict
    from windlass.tasks t
    join windlass.runs r on r.id = t.run_id and r.state <> 'running'
    where {scope t.run_id}
    group by t.run_id, r.state
) c
