-- G6.first: who waits first in a lane waits for a slot, and not for nothing
--
-- A slot that is free goes to the first who waits in the transaction that frees it, or in the
-- next sweep if there is a note for it. Where only time must pass, who waits first has a time, unless
-- someone tries for all of them. Otherwise the lane would stand still.
select
    case
        when l.held < p.slots and not exists (
            select from windlass.staged s where s.purpose = 'lane'
        ) then
            format('task %s/%s waits in lane "%s" of limit %s, which has %s slots and %s taken',
                p.run_id, p.idx, l.key, l.limit_id, p.slots, l.held)
        when p.slots is null and l.meter -> 'probing' is null and (
            l.alarm_seq is distinct from p.seq or w.due is distinct from l.alarm_due
        ) and not exists (
            select from windlass.staged s where s.purpose = 'lane'
        ) then
            format('task %s/%s waits first in lane "%s" of limit %s, and is not looked at again',
                p.run_id, p.idx, l.key, l.limit_id)
    end as problem
from (
    select distinct on (l.limit_id, l.tenant_id, l.key)
        l.limit_id, l.tenant_id, l.key, l.held, l.served, l.meter, l.alarm_seq, l.alarm_due
    from windlass.lanes l
    order by l.limit_id, l.tenant_id, l.key, l.number desc
) l
cross join lateral (
    select p.run_id, p.idx, p.slots, p.seq
    from windlass.lane_places p
    where p.limit_id = l.limit_id and p.tenant_id = l.tenant_id and p.key = l.key
        and p.seq > l.served and p.superseded is null
    order by p.seq
    limit 1
) p
left join windlass.timers w on w.run_id = p.run_id and w.idx = p.idx
