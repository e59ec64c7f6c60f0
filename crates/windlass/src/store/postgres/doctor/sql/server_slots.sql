-- server.slots: no replication slot and no standby holds back the server
--
-- A slot keeps the WAL that its consumer has not read, until the disk is full, and may keep dead rows
-- like an open transaction. A slot without a consumer keeps more and more. A standby with feedback keeps
-- dead rows for its own transactions.
select
    case
        when s.wal_status in ('unreserved', 'lost') then 'critical'
        else 'warning'
    end as severity,
    case
        when s.active then format('replication slot %I keeps dead rows', s.slot_name)
        else format('replication slot %I has no consumer', s.slot_name)
    end as problem,
    concat_ws(
        ', and ',
        'it keeps ' || pg_size_pretty(
            case
                when pg_is_in_recovery() then pg_last_wal_replay_lsn()
                else pg_current_wal_lsn()
            end - s.restart_lsn
        ) || ' of WAL',
        format('the dead rows of the last %s transactions', age(s.xmin)),
        format('the dead catalog rows of the last %s transactions', age(s.catalog_xmin))
    ) as cause,
    format('start its consumer, or select pg_drop_replication_slot(%L)', s.slot_name) as remedy
from pg_replication_slots s
where not s.temporary
    and (
        not s.active and s.restart_lsn is not null
        or age(s.xmin) > {old_transactions}
        or age(s.catalog_xmin) > {old_transactions}
    )
union all
select
    'warning',
    format('standby %s (session %s) keeps dead rows', r.application_name, r.pid),
    format(
        'vacuum cannot remove the dead rows of the last %s transactions in any table: queries '
        'on the standby may need them', age(r.backend_xmin)
    ),
    'end the long transactions there, or set hot_standby_feedback = off there'
from pg_stat_replication r
where age(r.backend_xmin) > {old_transactions}
