-- G9.attempts: the attempt of an event counts the starts since the last reset
--
-- A hand-back gives its start back; a retry of the run begins anew, and so does a function that
-- was parked. The count is made
-- from the starts themselves, not from what the events before say.
select
    case
        when c.attempt <> c.starts then
            format(
                'task %s/%s: event %s (%s) says attempt %s, counted %s', c.run_id, c.idx, c.id,
                c.kind, c.attempt, c.starts
            )
    end as problem
from (
    select
        s.run_id, s.idx, s.id, s.kind, s.attempt,
        sum(case s.kind when 'started' then 1 when 'released' then -1 else 0 end)
            over (partition by s.run_id, s.idx, s.resets order by s.id) as starts
    from (
        select
            e.run_id, e.idx, e.id, e.kind, e.attempt,
            count(1) filter (where e.kind in ('reset', 'parked', 'continued'))
                over (partition by e.run_id, e.idx order by e.id) as resets
        from windlass.events e
        where e.idx is not null and {scope e.run_id}
    ) s
) c
