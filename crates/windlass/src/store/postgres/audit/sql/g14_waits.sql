-- G14.waits: a task that waits for something to happen says for what, and it is not there
--
-- Nothing but a signal of the name in an open call, or the end of a child, lets it go on. If
-- there is no such call, or if the signal is there already, it might wait for ever. Signals to
-- keys are looked at by G14.keys.
select
    case
        when not exists (
            select
            from windlass.steps s
            where
                s.run_id = w.run_id and s.idx = w.idx and s.number is null
                and s.kind in ('signal', 'child')
        ) then
            format('task %s/%s waits, and no call of it does', w.run_id, w.idx)
        when exists (
            select
            from windlass.steps s
            join windlass.signals g on g.run_id = s.run_id and g.name = s.name
            where
                s.run_id = w.run_id and s.idx = w.idx and s.number is null
                and s.kind = 'signal' and s.key is null and not g.is_taken
        ) then
            format('task %s/%s waits for a signal that is there', w.run_id, w.idx)
    end as problem
from windlass.timers w
where w.is_waiting and {scope w.run_id}
    -- Who waits in a lane does not wait for a call.
    and not exists (
        select
        from windlass.lane_places p
        where p.run_id = w.run_id and p.idx = w.idx and (p.superseded = 'waiting' or p.seq > (
            select a.served
            from windlass.lanes a
            where a.limit_id = p.limit_id and a.tenant_id = p.tenant_id and a.key = p.key
            order by a.number desc
            limit 1
        ))
    )
