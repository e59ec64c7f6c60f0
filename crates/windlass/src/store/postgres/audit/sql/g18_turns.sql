-- G18.turns: no two ready tasks of a tenant have one turn
--
-- A tenant's next tag is behind its last one in the level. Two tasks with one tag were
-- tagged by two sessions that did not see each other, and the tenant gets two turns for
-- one.
select
    case
        when count(1) > 1 then
            format(
                'tenant %s has %s ready tasks with tag %s in level %s: %s', q.tenant_id, count(1),
                q.tag, q.level_id, string_agg(format('%s/%s', q.run_id, q.idx), ', ' order by q.seq)
            )
    end as problem
from windlass.ready q
where {scope q.run_id}
group by q.level_id, q.tenant_id, q.tag
