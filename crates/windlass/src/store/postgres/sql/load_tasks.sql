-- Tasks as they are, with what the narrow tables say of the active ones. The caller has
-- locked their runs; only a claim can still move a ready task.
--
-- $1 uuid[], $2 int[]: the tasks, as pairs
select
    t.run_id, t.idx, t.state, t.max_attempts,
    t.pending_parents, t.failed_parents, t.skipped_parents,
    coalesce(l.fence, q.fence, w.fence, t.fence) as fence,
    coalesce(l.attempt, q.attempt, w.attempt, t.attempt) as attempt,
    case
        when l.run_id is not null then l.answered_fence
        when q.run_id is not null then q.answered_fence
        when w.run_id is not null then w.answered_fence
        else t.answered_fence
    end as answered_fence,
    case
        when l.run_id is not null then l.answered_verb
        when q.run_id is not null then q.answered_verb
        when w.run_id is not null then w.answered_verb
        else t.answered_verb
    end as answered_verb,
    l.worker_id, l.claim_seq,
    q.run_id is not null as is_ready,
    w.due,
    coalesce(l.lane_id, q.lane_id) as lane_id,
    coalesce(l.level_id, q.level_id) as level_id,
    coalesce(l.tenant_id, q.tenant_id) as tenant_id,
    coalesce(l.tag, q.tag) as tag,
    coalesce(l.seq, q.seq) as seq,
    t.failure::text as failure
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
join windlass.tasks t on t.run_id = k.run_id and t.idx = k.idx
left join windlass.leases l on l.run_id = k.run_id and l.idx = k.idx
left join windlass.ready q on q.run_id = k.run_id and q.idx = k.idx
left join windlass.timers w on w.run_id = k.run_id and w.idx = k.idx;
