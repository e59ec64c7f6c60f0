-- Which of some tasks exist, and whether they were cancelled.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select k.run_id, k.idx, t.run_id is not null as is_cancelled
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
cross join lateral (
    select r.definition_id from windlass.runs r where r.id = k.run_id offset 0
) r
cross join lateral (
    select d.idx
    from windlass.definition_tasks d
    where d.definition_id = r.definition_id and d.idx = k.idx
    offset 0
) d
left join lateral (
    select t.run_id
    from windlass.task_rows t
    where t.run_id = k.run_id and t.idx = k.idx and t.state = 'cancelled'
    offset 0
) t on true;
