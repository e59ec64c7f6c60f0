-- The tasks of every definition, as its body has them.
select
    d.id as definition_id, (t.position - 1)::integer as idx, t.spec,
    case json_typeof(t.spec -> 'kind')
        when 'string' then t.spec ->> 'kind'
        else 'sleep'
    end as kind
from windlass.definitions d
cross join lateral json_array_elements(d.body -> 'tasks') with ordinality t (spec, position)
