-- What earlier attempts of tasks have left: their checkpoints, and why the newest that failed did.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select k.run_id, k.idx, c.value::text as value, t.failure::text as failure
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
left join lateral (
    select x.value
    from windlass.checkpoints x
    where x.run_id = k.run_id and x.idx = k.idx
    offset 0
) c on true
left join lateral (
    select x.failure
    from windlass.task_rows x
    where x.run_id = k.run_id and x.idx = k.idx
    offset 0
) t on true
where c.value is not null or t.failure is not null;
