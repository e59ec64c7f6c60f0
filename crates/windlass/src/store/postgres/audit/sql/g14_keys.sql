-- G14.keys: who waits for a signal to a key is noted, and told of one that is there
--
-- Whoever sends a signal to a key tells those who are noted to wait for it, and leaves a note for
-- each run, which lets it go on. A call that waits and is not noted, that was told and has no note,
-- or that was not told of a signal that is there, might wait for ever. One that is noted and does
-- not wait would be told for nothing, and would not be noted when it waits again.
select
    case
        when w.run_id is null then
            format('call %s of task %s/%s waits for key %s and is not noted', s.call, s.run_id,
                s.idx, to_json(s.key))
        when s.run_id is null then
            format('call %s of task %s/%s is noted to wait for key %s, and does not', w.call,
                w.run_id, w.idx, to_json(w.key))
        when w.is_told and n.run_id is null then
            format('call %s of task %s/%s was told of a signal to key %s, and has no note', w.call,
                w.run_id, w.idx, to_json(w.key))
        when w.is_told is null and exists (
            select
            from windlass.key_signals g
            where
                g.tenant = w.tenant and g.key = w.key and g.name = w.name and not g.is_taken
                and g.expires_at > {now}
        ) then
            format('call %s of task %s/%s waits for a signal to key %s that is there', w.call,
                w.run_id, w.idx, to_json(w.key))
    end as problem
from (
    select s.run_id, s.idx, s.call, r.tenant, s.key, s.name
    from windlass.timers t
    join windlass.runs r on r.id = t.run_id
    join windlass.steps s on s.run_id = t.run_id and s.idx = t.idx
    where t.is_waiting and s.number is null and s.key is not null
        -- Who waits in a lane does not wait for a call.
        and not exists (
            select
            from windlass.lane_places p
            where p.run_id = t.run_id and p.idx = t.idx and (p.superseded = 'waiting' or p.seq > (
                select a.served
                from windlass.lanes a
                where a.limit_id = p.limit_id and a.tenant_id = p.tenant_id and a.key = p.key
                order by a.number desc
                limit 1
            ))
        )
) s
full join windlass.key_waiters w
    on w.run_id = s.run_id and w.idx = s.idx and w.call = s.call and w.tenant = s.tenant
        and w.key = s.key and w.name = s.name
left join (
    select distinct n.run_id from windlass.staged n where n.purpose = 'signalled'
) n on n.run_id = w.run_id
where {scope coalesce(s.run_id, w.run_id)}
