-- server.connections: enough connections are left for another process
--
-- A store opens connections when it needs them. While it gets none it retries, and its workers wait.
-- Checks the limits of the server, of this database and of this role.
select
    case when l.allowed - l.used < 1 then 'critical' else 'warning' end as severity,
    format('%s of %s connections of %s are in use', l.used, l.allowed, l.whose)
        as problem,
    format(
        'a process with a pool of %s and a listener gets too few connections; most are used by %s',
        {pool_size}, coalesce(
            (
                select string_agg(format('%s (%s)', t.name, t.sessions), ', ' order by
                    t.sessions desc, t.name)
                from (
                    select
                        coalesce(nullif(a.application_name, ''), 'unnamed programs') as name,
                        count(*) as sessions
                    from pg_stat_activity a
                    where a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
                    group by 1
                    order by 2 desc, 1
                    limit 3
                ) t
            ),
            'no other session'
        )
    ) as cause,
    format(l.remedy, l.used + 3 * ({pool_size} + 1))
        || '; or open fewer with PostgresOptions::max_connections, or use a pooler' as remedy
from (
    select
        'the server' as whose,
        current_setting('max_connections')::integer
            - current_setting('superuser_reserved_connections')::integer
            - coalesce(current_setting('reserved_connections', true)::integer, 0) as allowed,
        (
            select count(*)
            from pg_stat_activity a
            where a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
        ) as used,
        'alter system set max_connections = %s, then restart the server' as remedy
    union all
    select
        format('database %I', d.datname),
        d.datconnlimit,
        (
            select count(*)
            from pg_stat_activity a
            where a.datid = d.oid and a.backend_type = 'client backend'
                and a.pid <> pg_backend_pid()
        ),
        format('alter database %I', d.datname) || ' connection limit %s'
    from pg_database d
    where d.datname = current_database() and d.datconnlimit >= 0
    union all
    select
        format('role %I', r.rolname),
        r.rolconnlimit,
        (
            select count(*)
            from pg_stat_activity a
            where a.usesysid = r.oid and a.backend_type = 'client backend'
                and a.pid <> pg_backend_pid()
        ),
        format('alter role %I', r.rolname) || ' connection limit %s'
    from pg_roles r
    where r.rolname = current_user and r.rolconnlimit >= 0
) l
where l.allowed - l.used < {pool_size} + 1
