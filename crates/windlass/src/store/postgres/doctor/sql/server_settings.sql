-- server.settings: the server settings are safe and sufficient
--
-- Checks the defaults of a session of this role in this database. The engine sets its own timeouts for
-- its sessions; these are for all others, such as your transactions that start runs.
select
    r.severity,
    format(
        '%s is %s', r.name,
        -- The time that this statement may take is set for itself only.
        case when s.unit = 'ms' then s.reset_val || ' ms' else current_setting(r.name) end
    ) as problem,
    r.cause,
    case
        when o.kind is not null then format('alter %s set %I = %L', o.kind, r.name, r.wanted)
        when s.context = 'postmaster' then
            format('alter system set %I = %L, then restart the server', r.name, r.wanted)
        else
            format('alter system set %I = %L; select pg_reload_conf()', r.name, r.wanted)
    end as remedy
from (
    select w.name, w.wanted, w.severity, w.cause
    from (
        values
            (
                'fsync', 'off', 'on', 'critical',
                'a crash of the machine can corrupt the whole cluster'
            ),
            (
                'full_page_writes', 'off', 'on', 'critical',
                'a crash of the machine can leave torn pages'
            ),
            (
                'synchronous_commit', 'off', 'on', 'critical',
                'a server crash loses acknowledged starts and results'
            ),
            (
                'autovacuum', 'off', 'on', 'critical',
                'dead rows of the queues are never removed: claims and sweeps become slower and '
                'slower'
            ),
            (
                'track_counts', 'off', 'on', 'critical',
                'autovacuum does not know what to vacuum, and this report cannot see dead rows'
            ),
            (
                'idle_in_transaction_session_timeout', '0', '5min', 'notice',
                'a forgotten transaction holds its locks and the dead rows of all tables forever'
            )
    ) w (name, bad, wanted, severity, cause)
    join pg_settings s on s.name = w.name and s.reset_val = w.bad
    union all
    select n.name, n.wanted, 'warning', n.cause
    from (
        values
            (
                'shared_buffers', 0::bigint, {shared_buffers_min}::bigint, '128MB',
                'the queues do not fit into memory: claims read them from disk'
            ),
            (
                'max_wal_size', 0, {max_wal_size_min}, '1GB',
                'checkpoints are too frequent, and after each of them every page is logged in '
                'full'
            ),
            (
                'max_locks_per_transaction', 0, {max_locks_min}, '64',
                'a transaction that starts runs of many tenants exhausts the locks of the server'
            ),
            (
                'statement_timeout', 1, {statement_timeout_min}, '30s',
                'starts of runs in SQL are cancelled while they wait for a lock'
            ),
            (
                'transaction_timeout', 1, {transaction_timeout_min}, '0',
                'operations of the engine are aborted and repeated'
            ),
            (
                'idle_session_timeout', 1, {forever}, '0',
                'idle listeners and pooled connections are closed: hints are lost until they '
                'reconnect'
            )
    ) n (name, first, below, wanted, cause)
    join pg_settings s on s.name = n.name
    cross join lateral (
        -- Sizes in bytes, times in milliseconds.
        select case s.unit
            when '8kB' then s.reset_val::bigint * 8192
            when 'MB' then s.reset_val::bigint * 1048576
            else s.reset_val::bigint
        end as value
    ) v
    where v.value >= n.first and v.value < n.below
) r
join pg_settings s on s.name = r.name
cross join (
    select b.oid, u.oid as role
    from pg_database b, pg_roles u
    where b.datname = current_database() and u.rolname = current_user
) d
left join lateral (
    -- Where it was set, if not for the whole server: the narrowest holds.
    select
        case
            when x.setrole = 0 then format('database %I', current_database())
            when x.setdatabase = 0 then format('role %I', current_user)
            else format('role %I in database %I', current_user, current_database())
        end as kind
    from pg_db_role_setting x
    cross join lateral unnest(x.setconfig) as c (setting)
    where (x.setdatabase = 0 or x.setdatabase = d.oid)
        and (x.setrole = 0 or x.setrole = d.role)
        and (x.setdatabase, x.setrole) <> (0, 0)
        and split_part(c.setting, '=', 1) = r.name
    order by x.setrole = 0, x.setdatabase = 0
    limit 1
) o on true
