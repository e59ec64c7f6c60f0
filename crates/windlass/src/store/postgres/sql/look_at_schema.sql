-- What kind of server this is, what is there of the schema, and the right that making the
-- rest takes, if the role does not have it. Reads catalogs only. Takes no locks that
-- matter.
select
    current_setting('server_version_num')::integer as version,
    current_setting('server_encoding') as encoding,
    current_user::text as role,
    s.oid is not null as has_schema,
    l.oid is not null as has_list,
    case
        when s.oid is null and not has_database_privilege(current_database(), 'create')
            then 'create on database ' || current_database()
        when s.oid is not null and not has_schema_privilege(s.oid, 'usage')
            then 'usage of schema windlass'
        when s.oid is not null and l.oid is null and not has_schema_privilege(s.oid, 'create')
            then 'create on schema windlass'
        when l.oid is not null and not has_table_privilege(l.oid, 'select')
            then 'select on windlass.migrations'
    end as lacks
from (select) as one
left join pg_namespace s on s.nspname = 'windlass'
left join pg_class l on l.relnamespace = s.oid and l.relname = 'migrations';
