-- rows.definitions: the rows of a definition's tasks say what its body says
--
-- The body is what workers are given; the rows are what statements join. If the two differ,
-- tasks are made, counted or retried by another workflow than the one that runs.
select
    case
        when d.idx is null then
            format('definition %s: task %s has no row', s.definition_id, s.idx)
        when s.idx is null then
            format('definition %s: row %s is not in its body', d.definition_id, d.idx)
        when (d.name, d.kind, d.parents, d.max_attempts) is distinct from (
            s.spec ->> 'name', s.kind, s.parents, (s.spec -> 'retry' ->> 'attempts')::integer
        ) then
            format(
                'definition %s: task %s is ("%s", %s, %s parents, %s attempts), its body says ("%s", %s, %s parents, %s attempts)',
                d.definition_id, d.idx, d.name, d.kind, d.parents, d.max_attempts,
                s.spec ->> 'name', s.kind, s.parents, s.spec -> 'retry' ->> 'attempts'
            )
        when s.open_tasks <> s.counted then
            format('definition %s has open_tasks %s, counted %s', s.definition_id, s.open_tasks,
                s.counted)
    end as problem
from (
    select
        s.definition_id, s.idx, s.kind, s.spec, f.open_tasks,
        (
            select count(distinct p.name)
            from json_array_elements_text(s.spec -> 'parents') p (name)
        ) as parents,
        count(1) filter (where s.kind <> 'on_failure')
            over (partition by s.definition_id) as counted
    from (
        {specs}
    ) s
    join windlass.definitions f on f.id = s.definition_id
) s
full join windlass.definition_tasks d on d.definition_id = s.definition_id and d.idx = s.idx
