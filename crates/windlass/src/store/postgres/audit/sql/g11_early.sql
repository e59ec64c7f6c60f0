-- G11.early: nothing that waits for a time goes on before it
--
-- The event that made a task wait says until when. The event after it, if it is the one
-- that ends the wait, must not be earlier.
select
    case
        when extract(epoch from c.at) * 1000000 < c.until then
            format('task %s/%s: event %s (%s) is of %s, due at %s µs', c.run_id, c.idx, c.id,
                c.kind, c.at, c.until)
    end as problem
from (
    select
        e.run_id, e.idx, e.id, e.kind, e.at, e.from_state,
        lag(case when e.to_state in ('scheduled', 'waiting') then (e.detail ->> 'until')::numeric end)
            over (partition by e.run_id, e.idx order by e.id) as until
    from windlass.events e
    where e.idx is not null and {scope e.run_id}
) c
where c.from_state in ('scheduled', 'waiting') and c.kind in ('queued', 'woken')
