-- The tasks of a run that have steps which can be undone.
--
-- $1 uuid: the run
select
    k.run_id, k.idx, r.definition_id, n.id as tenant_id, coalesce(t.fence, 0) as fence,
    coalesce(t.attempt, 0) as attempt
from (
    select distinct s.run_id, s.idx
    from windlass.steps s
    where s.run_id = $1 and s.kind = 'undoable' and s.number is not null and s.failure is null
) k
join windlass.runs r on r.id = k.run_id
join windlass.tenants n on n.name = r.tenant
left join windlass.task_rows t on t.run_id = k.run_id and t.idx = k.idx
order by k.idx;
