-- server.prepared: no transaction stays prepared for long
--
-- A transaction that was prepared for a two-phase commit belongs to no session: it survives restarts,
-- and keeps its locks and dead rows like an open one.
select
    case
        when clock_timestamp() - p.prepared > {long_transaction_factor} * ({long_transaction}) then
            'critical'
        else 'warning'
    end as severity,
    format(
        'transaction %L of role %s has been prepared for %s, since %s', p.gid, p.owner,
        date_trunc('second', clock_timestamp() - p.prepared), p.prepared
    ) as problem,
    format(
        'vacuum cannot remove the dead rows of the last %s transactions in any table, and its '
        'locks are held', age(p.transaction)
    ) as cause,
    format('commit prepared %L, or rollback prepared %L', p.gid, p.gid) as remedy
from pg_prepared_xacts p
where p.database = current_database() and p.prepared < clock_timestamp() - {long_transaction}
