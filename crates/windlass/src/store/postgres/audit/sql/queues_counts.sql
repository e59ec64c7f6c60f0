-- queues.counts: what is counted of the queues is what is in them
--
-- Whoever watches a fleet is told these numbers, and nobody ever counts the tasks. Changes that
-- were not added up yet belong to them.
select
    case
        when coalesce(r.ready, 0) <> coalesce(c.ready, 0) then format(
            'queue %s with priority %s has %s ready tasks, %s are counted',
            v.queue, v.priority, coalesce(r.ready, 0), coalesce(c.ready, 0))
    end as problem
from windlass.levels v
left join (
    select x.level_id, count(*) as ready from windlass.ready x group by x.level_id
) r on r.level_id = v.id
left join (
    select n.level_id, sum(n.came) - sum(n.went) as ready
    from (
        select q.level_id, q.came, q.went from windlass.queue_counts q
        union all
        select g.level_id, g.came, g.went from windlass.queue_changes g
    ) n
    group by n.level_id
) c on c.level_id = v.id
