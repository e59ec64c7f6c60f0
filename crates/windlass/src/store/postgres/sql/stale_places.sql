-- Places in lanes of tasks that have ended, in the order of the primary key, for the repair of
-- blocked limit keys. Locks nothing: the caller locks the runs and looks again.
--
-- $1 uuid, $2 int, $3 int: after which place (run, task, limit)   $4 bigint: how many
select p.run_id, p.idx, p.limit_id, m.name as limit_name, p.key, d.name as task, r.tenant, t.state
from windlass.lane_places p
cross join lateral (
    select t.state
    from windlass.task_rows t
    where t.run_id = p.run_id and t.idx = p.idx
    offset 0
) t
cross join lateral (
    select r.definition_id, r.tenant from windlass.runs r where r.id = p.run_id offset 0
) r
cross join lateral (
    select d.name
    from windlass.definition_tasks d
    where d.definition_id = r.definition_id and d.idx = p.idx
    offset 0
) d
cross join lateral (
    select m.name from windlass.limits m where m.id = p.limit_id offset 0
) m
where (p.run_id, p.idx, p.limit_id) > ($1, $2, $3)
    and t.state in ('succeeded', 'failed', 'cancelled', 'skipped')
order by p.run_id, p.idx, p.limit_id
limit $4;
