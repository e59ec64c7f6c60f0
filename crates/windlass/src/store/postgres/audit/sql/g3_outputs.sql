-- G3.outputs: a task has an output if it succeeded and has a handler, and only then
--
-- The output is written in the transaction of the success. Without it, the children of the
-- task and the callers of the run have nothing to read; an output of a task that did not
-- succeed is of an attempt that did not count, or of a round that is over.
select
    case
        when t.state = 'succeeded' and d.kind <> 'sleep' and o.run_id is null then
            format('task %s/%s succeeded and has no output', t.run_id, t.idx)
        when (t.state <> 'succeeded' or d.kind = 'sleep') and o.run_id is not null then
            format('task %s/%s is a %s %s and has an output', t.run_id, t.idx, t.state, d.kind)
    end as problem
from windlass.tasks t
join windlass.runs r on r.id = t.run_id
join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = t.idx
left join windlass.outputs o on o.run_id = t.run_id and o.idx = t.idx
where {scope t.run_id}
