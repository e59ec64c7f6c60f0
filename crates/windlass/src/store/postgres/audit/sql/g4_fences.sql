-- G4.fences: every start of a task has a larger fence than the one before
--
-- The fence is what tells a worker that lost its lease from the one that has it now,
-- through reaping, hand-back and retries of the run. Two starts with one fence could both
-- finish.
select
    case
        when c.fence <= c.before then
            format(
                'task %s/%s: start %s has fence %s after fence %s', c.run_id, c.idx, c.id, c.fence,
                c.before
            )
    end as problem
from (
    select
        e.run_id, e.idx, e.id, e.fence,
        lag(e.fence, 1, 0::bigint) over (partition by e.run_id, e.idx order by e.id) as before
    from windlass.events e
    where e.idx is not null and e.kind = 'started' and {scope e.run_id}
) c
