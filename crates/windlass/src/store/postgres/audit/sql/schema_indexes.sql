-- schema.indexes: every index of the schema is there and valid
--
-- Without its index a claim or a sweep reads the whole table. Indexes behind constraints
-- are found by schema.constraints.
select
    case
        when i.indexrelid is null then format('index %s on windlass.%s does not exist', x.name,
            x.relation)
        when not (i.indisvalid and i.indisready and i.indislive) then
            format('index %s on windlass.%s is not valid', x.name, x.relation)
    end as problem
from (
    values
        {indexes}
) x (relation, name)
left join pg_index i
    on i.indexrelid = to_regclass('windlass.' || x.name)
    and i.indrelid = to_regclass('windlass.' || x.relation)
