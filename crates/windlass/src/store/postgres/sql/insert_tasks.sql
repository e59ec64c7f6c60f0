-- Makes the tasks of runs: those without parents active, the others pending.
--
-- $1 uuid[]: the runs   $2 int[]: their definitions
insert into windlass.tasks (run_id, idx, state, max_attempts, pending_parents)
select k.run_id, d.idx,
    case when d.parents = 0 and d.kind <> 'on_failure' then 'active' else 'pending' end,
    d.max_attempts, d.parents
from unnest($1::uuid[], $2::integer[]) as k (run_id, definition_id)
cross join lateral (
    select d.idx, d.parents, d.kind, d.max_attempts
    from windlass.definition_tasks d
    where d.definition_id = k.definition_id
    order by d.idx
) d;
