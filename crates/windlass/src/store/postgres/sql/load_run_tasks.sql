-- All tasks of a run, as `load_tasks` gives them.
--
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
left join lateral (
    select l.run_id, l.worker_id, l.claim_seq, l.lane_id, l.level_id, l.tenant_id, l.tag, l.seq,
        l.fence, l.attempt, l.answered_fence, l.answered_verb
    from windlass.leases l
    where l.run_id = t.run_id and l.idx = t.idx
    offset 0
) l on true
left join lateral (
    select q.run_id, q.lane_id, q.level_id, q.tenant_id, q.tag, q.seq,
        q.fence, q.attempt, q.answered_fence, q.answered_verb
    from windlass.ready q
    where q.run_id = t.run_id and q.idx = t.idx
    offset 0
) q on true
left join lateral (
    select w.run_id, w.due, w.fence, w.attempt, w.answered_fence, w.answered_verb
    from windlass.timers w
    where w.run_id = t.run_id and w.idx = t.idx
    offset 0
) w on true
where t.run_id = $1;
