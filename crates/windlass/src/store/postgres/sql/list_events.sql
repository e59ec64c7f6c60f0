-- The history of a run behind an event.
--
-- $1 uuid: the run   $2 bigint: the event   $3 bigint: how many
select e.id, e.at, e.kind, e.idx, e.from_state, e.to_state, e.fence, e.attempt, e.detail::text,
    d.name
from windlass.events e
join windlass.runs r on r.id = e.run_id
left join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = e.idx
where e.run_id = $1 and e.id > $2
order by e.id
limit $3;
