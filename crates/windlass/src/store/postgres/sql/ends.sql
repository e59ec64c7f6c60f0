-- How tasks ended; those that have not are left out.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select t.run_id, t.idx, t.state, t.output
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
cross join lateral (
    select t.run_id, t.idx, t.state, t.output::text
    from windlass.task_rows t
    where t.run_id = k.run_id and t.idx = k.idx
        and t.state in ('succeeded', 'failed', 'cancelled', 'skipped')
    offset 0
) t;
