-- schema.migrations: every migration of this program is noted, with its name and text
--
-- A schema that was made by other texts may have the version that this program wants and
-- not the tables and functions that it knows.
select
    case
        when m.version is null then format('migration %s, %s, is not noted', x.version, x.name)
        when m.name <> x.name then
            format('migration %s is noted as %s, not %s', x.version, m.name, x.name)
        when m.checksum <> x.checksum then format(
            'migration %s, %s, was applied with another text than this program has',
            x.version, x.name
        )
    end as problem
from (
    values
        {migrations}
) x (version, name, checksum)
left join windlass.migrations m on m.version = x.version
