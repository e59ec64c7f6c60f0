-- server.notify: the queue of notifications is nearly empty
--
-- Hints go through one queue of the whole server. It grows when a session listens and does not
-- come to read, such as one that is in a transaction. Once it is full, whoever notifies fails.
select
    case when q.usage > 5 * {notify_queue_max} then 'critical' else 'warning' end as severity,
    format('%s %% of the queue of notifications is in use', round((100 * q.usage)::numeric, 6))
        as problem,
    coalesce(
        (
            select format(
                'a session that listens does not read; in a transaction are the sessions %s',
                string_agg(a.pid::text, ', ' order by a.xact_start, a.pid)
            )
            from pg_stat_activity a
            where a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
                and a.xact_start is not null
            having count(*) > 0
        ),
        'a session that listens does not read'
    ) as cause,
    'end the transactions of sessions that listen: select pg_terminate_backend(<pid>)' as remedy
from (select pg_notification_queue_usage() as usage) q
where q.usage > {notify_queue_max}
