-- The first of some tasks of a run that have not ended.
--
-- $1 uuid: the run   $2 int[]: the tasks   $3 bigint: how many
select k.idx
from unnest($2::integer[]) with ordinality as k (idx, n)
left join lateral (
    select t.state from windlass.task_rows t where t.run_id = $1 and t.idx = k.idx offset 0
) t on true
where t.state is null or t.state in ('pending', 'active')
order by k.n
limit $3;
