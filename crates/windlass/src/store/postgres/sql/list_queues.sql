-- What is in the queues as of the last rollup: always at least one row, for the times.
--
-- $1 timestamptz: the time, null for that of the server   $2 bigint: the most queues
select coalesce($1, clock_timestamp()) as at, d.last_run_at as counted_at,
    k.queue, k.priority, k.came, k.went, k.changed_at, k.oldest_at
from windlass.leaders d
left join (
    select v.queue, v.priority, q.came, q.went, q.changed_at, q.oldest_at
    from windlass.queue_counts q
    join windlass.levels v on v.id = q.level_id
    order by v.queue, v.priority desc
    limit $2
) k on true
where d.duty = 'rollup'
order by k.queue, k.priority desc;
