-- G11.stored: a task that waits for a time is due when its last event said
--
-- The timer is written in the transaction of the event. One that is due earlier wakes the
-- task too early, and this sees it before it happens.
select
    case
        when e.until <> extract(epoch from w.due) * 1000000 then
            format('task %s/%s is due at %s, its last event said %s µs', w.run_id, w.idx, w.due,
                e.until)
    end as problem
from windlass.timers w
join (
    select distinct on (e.run_id, e.idx)
        e.run_id, e.idx,
        case when e.to_state in ('scheduled', 'waiting') then (e.detail ->> 'until')::numeric end as until
    from windlass.events e
    where e.idx is not null and {scope e.run_id}
    order by e.run_id, e.idx, e.id desc
) e on e.run_id = w.run_id and e.idx = w.idx
where isfinite(w.due) and {scope w.run_id}
