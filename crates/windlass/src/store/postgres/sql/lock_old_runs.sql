-- Locks runs that are to go, in the order of their ids, and leaves out those that others have.
--
-- $1 uuid[]: the runs
select r.id, r.definition_id, r.workflow, r.state, r.round, r.created_at, r.ended_at,
    case when r.workflow like '%~undo' then r.input::text end as undoes
from windlass.runs r
where r.id = any($1)
order by r.id
for update skip locked;
