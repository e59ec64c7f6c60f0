-- G2.times: the times of a task's events do not go back
--
-- Events are in the order of their ids. If the times are not, a time was read before a
-- lock was waited for, or the clock of the database was set back.
select
    case
        when c.at < c.before then
            format(
                '%s: event %s is of %s, the one before of %s',
                case
                    when c.idx is null then format('run %s', c.run_id)
                    else format('task %s/%s', c.run_id, c.idx)
                end,
                c.id, c.at, c.before
            )
    end as problem
from (
    select
        e.run_id, e.idx, e.id, e.at,
        lag(e.at) over (partition by e.run_id, e.idx order by e.id) as before
    from windlass.events e
    where {scope e.run_id}
) c
