-- What kind of server this is, and what the role lacks in the schema. Reads catalogs
-- only, so that it is answered whatever the role may do. Takes no locks that matter.
--
-- returns one row: version, encoding, role, database, whether the settings of our sessions
-- hold, whether it only replays another server, whether transactions may not write, whether
-- the schema is there, whether its list of migrations is there, and the first right that is
-- missing
select
    current_setting('server_version_num')::integer as version,
    current_setting('server_encoding') as encoding,
    current_user::text as role,
    current_database()::text as database,
    current_setting('plan_cache_mode') = 'force_generic_plan' as has_settings,
    pg_is_in_recovery() as is_standby,
    current_setting('transaction_read_only')::boolean as is_read_only,
    exists (select from pg_namespace n where n.nspname = 'windlass') as has_schema,
    exists (
        select from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'windlass' and c.relname = 'migrations'
    ) as has_migrations,
    (
        select lacking.what
        from (
            select 0 as rank, 'usage of schema windlass' as what
            from pg_namespace n
            where n.nspname = 'windlass' and not has_schema_privilege(n.oid, 'usage')
            union all
            select 1, r.name || ' on windlass.' || c.relname
            from pg_class c
            join pg_namespace n on n.oid = c.relnamespace
            cross join (values ('select'), ('insert'), ('update'), ('delete')) as r (name)
            where n.nspname = 'windlass'
                and (c.relkind in ('r', 'p') or (c.relkind = 'v' and r.name = 'select'))
                and (c.relname <> 'migrations' or r.name = 'select')
                and not has_table_privilege(c.oid, r.name)
            union all
            select 1, 'usage of windlass.' || c.relname
            from pg_class c
            join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'windlass'
                -- In this order: of something else than a sequence it is an error to ask.
                and case when c.relkind = 'S' then not has_sequence_privilege(c.oid, 'usage') end
                -- An identity column's own sequence asks for no right.
                and not exists (
                    select from pg_depend d
                    where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'i'
                )
        ) as lacking
        order by lacking.rank, lacking.what
        limit 1
    ) as lacks;
