-- server.transactions: no transaction in this database is open for long
--
-- Vacuum cannot remove rows that died after the snapshot of an open transaction, in any table of the
-- database. The queues replace all their rows constantly, so they slow down first. Its locks are held as
-- well.
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
            'vacuum cannot remove the dead rows of the last %s transactions in any table: claims '
            'and sweeps become slower', age(t.xmin)
        )
        else 'it holds its locks and its connection'
    end as cause,
    format(
        'select pg_terminate_backend(%s); set idle_in_transaction_session_timeout to end such '
        'sessions automatically', t.pid
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
