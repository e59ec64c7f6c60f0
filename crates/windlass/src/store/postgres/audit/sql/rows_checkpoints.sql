-- rows.checkpoints: a checkpoint belongs to a task that was claimed and has not ended
--
-- An attempt leaves it for the next one, under the fence of its claim. Of a task that has
-- ended there is no next one: the row would stay for ever, and a retry of the run would go on
-- in the middle of what another round began.
select
    case
        when t.state in ({final}) then
            format('task %s/%s has ended %s and has a checkpoint', c.run_id, c.idx, t.state)
        when t.fence < c.fence then
            format('task %s/%s has a checkpoint of fence %s, its own is %s', c.run_id, c.idx,
                c.fence, t.fence)
    end as problem
from windlass.checkpoints c
join windlass.task_states t on t.run_id = c.run_id and t.idx = c.idx
where {scope c.run_id}
