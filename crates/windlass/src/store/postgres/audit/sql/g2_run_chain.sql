-- G2.run-chain: every event of a run begins in the state that the one before led to
--
-- The first comes from nowhere: it is the run's start. See G2.chain.
select
    case
        when c.from_state is distinct from c.before then
            format(
                'run %s: event %s (%s) is from %s, the run was %s', c.run_id, c.id, c.kind,
                coalesce(c.from_state, 'nothing'), coalesce(c.before, 'nothing')
            )
    end as problem
from (
    select
        e.run_id, e.id, e.kind, e.from_state,
        lag(e.to_state) over (partition by e.run_id order by e.id) as before
    from windlass.events e
    where e.idx is null and {scope e.run_id}
) c
