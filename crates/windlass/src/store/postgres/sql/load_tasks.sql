-- Tasks as they are: their rows, if they have any, and what the narrow tables say of the
-- active ones. The caller has locked their runs; only a claim can still move a ready task.
--
-- `offset 0` makes each lookup one of its own, by the primary key: as joins, a table that
-- was empty when it was last vacuumed would be read whole.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select
    k.run_id, k.idx, t.state,
    case when t.run_id is not null then coalesce(t.pending_parents, 0) end as pending_parents,
    t.failed_parents, t.skipped_parents,
    coalesce(l.fence, q.fence, w.fence, t.fence) as fence,
    coalesce(l.attempt, q.attempt, w.attempt, t.attempt) as attempt,
    case
        when l.run_id is not null then l.answered_fence
        when q.run_id is not null then q.answered_fence
        when w.run_id is not null then w.answered_fence
        else coalesce(t.answered_fence, case when t.answered_verb is not null then t.fence end)
    end as answered_fence,
    case
        when l.run_id is not null then l.answered_verb
        when q.run_id is not null then q.answered_verb
        when w.run_id is not null then w.answered_verb
        else t.answered_verb
    end as answered_verb,
    l.worker_id, l.claim_seq, l.has_checkpoint,
    q.run_id is not null as is_ready,
    w.due,
    coalesce(w.is_waiting, false) as is_waiting,
    coalesce(l.route_id, q.route_id) as route_id,
    coalesce(l.tag, q.tag) as tag,
    coalesce(l.seq, q.seq) as seq,
    t.failure::text as failure
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
left join lateral (
    select t.run_id, t.state, t.pending_parents, t.failed_parents, t.skipped_parents,
        t.fence, t.attempt, t.answered_fence, t.answered_verb, t.failure
    from windlass.task_rows t
    where t.run_id = k.run_id and t.idx = k.idx
    offset 0
) t on true
left join lateral (
    select l.run_id, l.worker_id, l.claim_seq, l.route_id, l.tag, l.seq, l.fence,
        l.attempt, l.answered_fence, l.answered_verb, l.has_checkpoint
    from windlass.leases l
    where l.run_id = k.run_id and l.idx = k.idx
    offset 0
) l on true
left join lateral (
    select q.run_id, q.route_id, q.tag, q.seq, q.fence,
        q.attempt, q.answered_fence, q.answered_verb
    from windlass.ready q
    where q.run_id = k.run_id and q.idx = k.idx
    offset 0
) q on true
left join lateral (
    select w.run_id, w.due, w.fence, w.attempt, w.answered_fence, w.answered_verb, w.is_waiting
    from windlass.timers w
    where w.run_id = k.run_id and w.idx = k.idx
    offset 0
) w on true;
