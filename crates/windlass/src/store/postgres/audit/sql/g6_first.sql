-- G6.first: who waits first in a lane waits for a slot, and not for nothing
--
-- A slot that is free goes to the first who waits in the transaction that frees it, or in the
-- next sweep if there is a note for it. Otherwise the lane would stand still.
select
    case
        when l.held < p.slots and not exists (
            select from windlass.staged s where s.purpose = 'lane'
        ) then
            format('task %s/%s waits in lane "%s" of limit %s, which has %s slots and %s taken',
                p.run_id, p.idx, l.key, l.limit_id, p.slots, l.held)
    end as problem
from (
    select distinct on (l.limit_id, l.tenant_id, l.key)
        l.limit_id, l.tenant_id, l.key, l.held, l.served
    from windlass.lanes l
    order by l.limit_id, l.tenant_id, l.key, l.number desc
) l
cross join lateral (
    select p.run_id, p.idx, p.slots
    from windlass.lane_places p
    where p.limit_id = l.limit_id and p.tenant_id = l.tenant_id and p.key = l.key
        and p.seq > l.served
    order by p.seq
    limit 1
) p
