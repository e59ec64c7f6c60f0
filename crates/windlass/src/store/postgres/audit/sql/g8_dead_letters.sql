-- G8.dead-letters: a failed task is a dead letter until its run is cancelled or it is discarded
--
-- Whoever looks for what failed looks there, not at all runs: a task that failed and is not there
-- is lost to them, and one that is there and has not failed is redriven for nothing. Only the
-- dead letters of a run that has failed can be discarded, and the log of operators says so.
select
    case
        when d.run_id is null and t.run_state <> 'cancelled' and not exists (
            select from windlass.operator_log l
            where l.action = 'discard' and l.runs @> array[t.run_id] and l.at >= t.ended_at
        ) then
            format('task %s/%s failed and is no dead letter', t.run_id, t.idx)
        when d.run_id is not null and t.run_id is null then
            format('task %s/%s is a dead letter and has not failed', d.run_id, d.idx)
        when d.run_id is not null and t.run_state = 'cancelled' then
            format('task %s/%s is a dead letter of a run that was cancelled', d.run_id, d.idx)
        when d.round <> t.round then
            format('task %s/%s is a dead letter of round %s, its run is in round %s', d.run_id,
                d.idx, d.round, t.round)
    end as problem
from (
    select t.run_id, t.idx, r.round, r.ended_at, r.state as run_state
    from windlass.task_rows t
    join windlass.runs r on r.id = t.run_id
    where t.state = 'failed' and {scope t.run_id}
) t
full join (
    select d.run_id, d.idx, d.round
    from windlass.dead_letters d
    where {scope d.run_id}
) d on d.run_id = t.run_id and d.idx = t.idx
