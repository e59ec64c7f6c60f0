-- What kind of server this is, whether it can be written to, what is there of the schema, the
-- rights that reading it and making the rest take, if the role does not have them, and a
-- stranger to whom part of it belongs: a role that is neither ours nor above us. What a
-- stranger has prepared must not be run with our rights; a superuser is a member of every
-- role, which says nothing. Reads catalogs only. Takes no locks that matter.
select
    current_setting('server_version_num')::integer as version,
    current_setting('server_encoding') as encoding,
    current_user::text as role,
    pg_is_in_recovery() as is_standby,
    current_setting('transaction_read_only')::boolean as is_read_only,
    s.oid is not null as has_schema,
    l.oid is not null as has_list,
    case
        when s.oid is not null and not has_schema_privilege(s.oid, 'usage')
            then 'usage of schema windlass'
        when l.oid is not null and not has_table_privilege(l.oid, 'select')
            then 'select on windlass.migrations'
    end as cannot_read,
    case
        when s.oid is null and not has_database_privilege(current_database(), 'create')
            then 'create on database ' || current_database()
        when s.oid is not null and l.oid is null and not has_schema_privilege(s.oid, 'create')
            then 'create on schema windlass'
    end as cannot_make,
    (
        select o.rolname::text
        from pg_roles o
        cross join pg_roles u
        join pg_database d on d.datname = current_database()
        where o.oid in (s.nspowner, l.relowner)
            and u.rolname = current_user
            and o.oid <> u.oid
            and not o.rolsuper
            and o.oid <> d.datdba
            and (u.rolsuper or not pg_has_role(u.oid, o.oid, 'member'))
        limit 1
    ) as stranger
from (select) as one
left join pg_namespace s on s.nspname = 'windlass'
left join pg_class l on l.relnamespace = s.oid and l.relname = 'migrations';
