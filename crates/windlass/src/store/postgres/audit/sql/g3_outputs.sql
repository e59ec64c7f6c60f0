-- G3.outputs: a task has an output only if it succeeded and has a handler
--
-- The output is written with the success, in one row. An output of a task that did not
-- succeed is of an attempt that did not count, or of a round that is over.
select
    case
        when (t.state <> 'succeeded' or d.kind = 'sleep') and t.output is not null then
            format('task %s/%s is a %s %s and has an output', t.run_id, t.idx, t.state, d.kind)
    end as problem
from windlass.task_rows t
join windlass.runs r on r.id = t.run_id
join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = t.idx
where {scope t.run_id}
