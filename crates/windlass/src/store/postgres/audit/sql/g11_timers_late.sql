-- G11.timers-late: what is due goes on soon
--
-- A task that was due long ago still waits: nobody promotes what is due.
select
    case
        when w.due < {now} - {late_after} then
            format('task %s/%s was due at %s and still waits', w.run_id, w.idx, w.due)
    end as problem
from windlass.timers w
where {scope w.run_id}
