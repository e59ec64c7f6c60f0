-- G2.one-end: a task ends at most once in a round of its run
--
-- A round begins with the run or with a retry of it. Only a retry may take a task out of
-- its final state, so a second end in one round means that a final state was not final.
select
    case
        when count(1) > 1 then
            format(
                'task %s/%s ended %s times in round %s: %s', c.run_id, c.idx, count(1), c.round,
                string_agg(c.to_state, ', ' order by c.id)
            )
    end as problem
from (
    select
        e.run_id, e.idx, e.id, e.to_state,
        1 + count(1) filter (where e.kind = 'run_retried')
            over (partition by e.run_id order by e.id) as round
    from windlass.events e
    where {scope e.run_id}
) c
where c.idx is not null and c.to_state in ({final})
group by c.run_id, c.idx, c.round
