-- How some tasks of a run stand, and who has those that are running.
--
-- $1 uuid: the run   $2 int[]: the tasks
select k.idx, t.state, t.pending_parents, t.failure::text as failure,
    coalesce(l.attempt, q.attempt, w.attempt, t.attempt, 0) as attempt,
    l.worker_id, l.take_back_at, n.note::text as note,
    o.name as worker_name, o.state as worker_state, p.lease_until,
    q.tenant_id, q.tag, q.seq, v.priority, b.bucket,
    w.due, w.is_waiting
from unnest($2::integer[]) as k (idx)
left join lateral (
    select t.state, t.attempt, coalesce(t.pending_parents, 0) as pending_parents, t.failure
    from windlass.task_rows t
    where t.run_id = $1 and t.idx = k.idx
    offset 0
) t on true
left join lateral (
    select l.attempt, l.fence, l.worker_id, l.take_back_at
    from windlass.leases l
    where l.run_id = $1 and l.idx = k.idx
    offset 0
) l on true
left join lateral (
    select q.attempt, q.level_id, q.route_id, q.tenant_id, q.tag, q.seq
    from windlass.ready q
    where q.run_id = $1 and q.idx = k.idx
    offset 0
) q on true
left join lateral (
    select w.attempt, w.due, w.is_waiting
    from windlass.timers w
    where w.run_id = $1 and w.idx = k.idx
    offset 0
) w on true
left join lateral (
    select n.note
    from windlass.notes n
    where n.run_id = $1 and n.idx = k.idx and n.fence = l.fence
    offset 0
) n on true
left join lateral (
    select o.name, o.state from windlass.workers o where o.id = l.worker_id offset 0
) o on true
left join lateral (
    select x.lease_until
    from windlass.pulses x
    where x.worker_id = l.worker_id
    order by x.number desc
    limit 1
) p on true
left join lateral (
    select v.priority from windlass.levels v where v.id = q.level_id offset 0
) v on true
left join lateral (
    select b.bucket from windlass.routes b where b.id = q.route_id offset 0
) b on true;
