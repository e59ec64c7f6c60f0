-- server.transactions: no transaction in this database is open for long
--
-- Rows that died after a transaction took its snapshot cannot be removed while it is open, in
-- any table of the database. The queues turn over all their rows all the time, so they suffer
-- first. Also, whatever it has locked stays locked.
select
    case
        when t.age > {long_transaction_factor} * ({long_transaction}) then 'critical'
        else 'warning'
    end as severity,
    format(
        'session %s (%s, role %s, %s) has had a transaction open for %s, since %s; its last '
        'statement began at %s',
        t.pid, t.application, t.role, t.state, date_trunc('second', t.age), t.since, t.query_start
    ) as problem,
    case
        when t.xmin is not null then format(
            'all that died in the last %s transactions is kept in every table for it: claims '
            'and sweeps read past more and more dead rows', age(t.xmin)
        )
        else 'it keeps its locks and its connection'
    end as cause,
    format(
        'select pg_terminate_backend(%s); and let the server do so with '
        'idle_in_transaction_session_timeout', t.pid
    ) as remedy
from (
    select
        a.pid,
        coalesce(nullif(a.application_name, ''), 'no application') as application,
        a.usename as role,
        a.state,
        clock_timestamp() - a.xact_start as age,
        a.xact_start as since,
        a.query_start,
        coalesce(a.backend_xmin, a.backend_xid) as xmin
    from pg_stat_activity a
    where a.backend_type = 'client backend'
        and a.datname = current_database()
        and a.pid <> pg_backend_pid()
        and a.xact_start < clock_timestamp() - {long_transaction}
) t
