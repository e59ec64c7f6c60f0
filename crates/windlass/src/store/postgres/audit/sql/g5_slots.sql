-- G5.slots: no more tasks have slots in a lane than it has, and it counts those that have
--
-- The newest row of a lane says up to which place slots were given. Who stands up to there has
-- one, unless it waited when someone else took its place; how many there may be at once is what
-- the definitions of those tasks say, if they say anything of it.
select
    case
        when l.held <> p.held then
            format('lane "%s" of limit %s counts %s slots that are taken, %s are', l.key,
                l.limit_id, l.held, p.held)
        when p.held > p.slots then
            format('lane "%s" of limit %s has %s slots, %s are taken', l.key, l.limit_id, p.slots,
                p.held)
    end as problem
from (
    select distinct on (l.limit_id, l.tenant_id, l.key)
        l.limit_id, l.tenant_id, l.key, l.held, l.served
    from windlass.lanes l
    order by l.limit_id, l.tenant_id, l.key, l.number desc
) l
cross join lateral (
    select count(1) as held, max(p.slots) as slots
    from windlass.lane_places p
    where p.limit_id = l.limit_id and p.tenant_id = l.tenant_id and p.key = l.key
        and p.seq <= l.served and p.superseded is distinct from 'waiting'
) p
