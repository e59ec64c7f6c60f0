-- Whether there is a schema to audit, and the first right that reading all of it takes and the
-- role lacks. Reads catalogs only, so that it is answered whatever the role may do. Takes no
-- locks that matter.
--
-- returns one row: role, whether the list of migrations is there, and the right
select
    current_user::text as role,
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
            select 1, 'select on windlass.' || c.relname
            from pg_class c
            join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'windlass'
                and c.relkind in ('r', 'p', 'v')
                and not has_table_privilege(c.oid, 'select')
        ) as lacking
        order by lacking.rank, lacking.what
        limit 1
    ) as lacks;
