-- G2.run-state: a run is in the state that its history leads to
--
-- Every run has a history from its first moment: one without an event is wrong as well.
select
    case
        when e.to_state is distinct from r.state then
            format(
                'run %s is %s, its last event says %s', r.id, r.state,
                coalesce(e.to_state, 'nothing')
            )
    end as problem
from windlass.runs r
left join (
    select distinct on (e.run_id) e.run_id, e.to_state
    from windlass.events e
    where e.idx is null and {scope e.run_id}
    order by e.run_id, e.id desc
) e on e.run_id = r.id
where {scope r.id}
