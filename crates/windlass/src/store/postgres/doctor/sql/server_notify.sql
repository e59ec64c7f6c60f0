-- server.notify: the notification queue is nearly empty
--
-- Hints go through one queue of the whole server. It grows while a session that listens does not read,
-- for example because it is in a transaction. Once it is full, every NOTIFY fails.
select
    case when q.usage > 5 * {notify_queue_max} then 'critical' else 'warning' end as severity,
    format('%s %% of the notification queue is in use', round((100 * q.usage)::numeric, 6))
        as problem,
    coalesce(
        (
            select format(
                'a listening session does not read; sessions in a transaction: %s',
                string_agg(a.pid::text, ', ' order by a.xact_start, a.pid)
            )
            from pg_stat_activity a
            where a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
                and a.xact_start is not null
            having count(*) > 0
        ),
        'a listening session does not read'
    ) as cause,
    'end the transactions of listening sessions: select pg_terminate_backend(<pid>)' as remedy
from (select pg_notification_queue_usage() as usage) q
where q.usage > {notify_queue_max}
