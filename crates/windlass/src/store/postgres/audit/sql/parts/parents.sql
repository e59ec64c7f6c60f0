-- The edges of every definition: a task and one of its parents.
select distinct d.id as definition_id, (t.position - 1)::integer as idx, x.idx as parent
from windlass.definitions d
cross join lateral json_array_elements(d.body -> 'tasks') with ordinality t (spec, position)
cross join lateral json_array_elements_text(t.spec -> 'parents') p (name)
join windlass.definition_tasks x on x.definition_id = d.id and x.name = p.name
