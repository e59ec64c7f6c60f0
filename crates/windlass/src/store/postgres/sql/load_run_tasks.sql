-- All tasks of a run, as `load_tasks` gives them.
-- $1 uuid: the run, which the caller has locked
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
from windlass.tasks t
left join windlass.leases l on l.run_id = t.run_id and l.idx = t.idx
left join windlass.ready q on q.run_id = t.run_id and q.idx = t.idx
left join windlass.timers w on w.run_id = t.run_id and w.idx = t.idx
where t.run_id = $1;
