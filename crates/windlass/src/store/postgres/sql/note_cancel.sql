-- Notes for the next sweep that the children of runs are to be cancelled, if they have some.
--
-- $1 uuid[]: the runs
insert into windlass.staged (run_id, purpose)
select k.run_id, 'cancelled'
from unnest($1::uuid[]) as k (run_id)
where exists (
    select from windlass.children c where c.run_id = k.run_id and c.has_ended is null
);
