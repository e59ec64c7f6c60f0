-- rows.inputs: every run has its input
--
-- The input is written with the run. Without it, no task of the run can be given to a
-- worker.
select
    case when i.run_id is null then format('run %s has no input', r.id) end as problem
from windlass.runs r
left join windlass.inputs i on i.run_id = r.id
where {scope r.id}
