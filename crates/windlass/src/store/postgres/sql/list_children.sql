-- The children of a call and what they came to, in the order of their places.
--
-- $1 uuid, $2 int: the task   $3 int: the call   $4 int: behind which place
-- $5 bigint: how many
select
    c.place, c.child_id, r.state,
    case when r.state = 'succeeded' then o.output::text end as output,
    case when r.state = 'failed' then f.failure::text end as failure
from windlass.children c
join windlass.runs r on r.id = c.child_id
left join lateral (
    select t.output
    from windlass.task_rows t
    where t.run_id = c.child_id and t.idx = 0
        and (
            select count(1) from windlass.definition_tasks d
            where d.definition_id = r.definition_id
        ) = 1
    offset 0
) o on true
left join lateral (
    select t.failure
    from windlass.task_rows t
    where t.run_id = c.child_id and t.state = 'failed'
    order by t.idx
    limit 1
) f on true
where c.run_id = $1 and c.idx = $2 and c.call = $3 and c.place > $4
order by c.place
limit $5;
