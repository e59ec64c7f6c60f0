-- schema.constraints: every constraint of the schema is there and valid
--
-- Constraints state what no row may ever be. One that was dropped, or added again without
-- checking the rows that are there, states nothing.
select
    case
        when c.oid is null then format('constraint %s on windlass.%s does not exist', x.name,
            x.relation)
        when not c.convalidated then format('constraint %s on windlass.%s is not valid', x.name,
            x.relation)
    end as problem
from (
    values
        {constraints}
) x (relation, name)
left join pg_constraint c
    on c.conrelid = to_regclass('windlass.' || x.relation) and c.conname = x.name
