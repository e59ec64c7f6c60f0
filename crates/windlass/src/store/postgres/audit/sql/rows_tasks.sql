-- rows.tasks: a run has exactly the tasks of its definition
--
-- All tasks of a run are made when it starts. Indices are unique within a run, so their
-- number and the largest one say whether they are those of the definition.
select
    case
        when coalesce(t.tasks, 0) <> d.tasks or t.last <> d.last then
            format(
                'run %s has %s tasks up to index %s, its definition has %s up to %s', r.id,
                coalesce(t.tasks, 0), coalesce(t.last::text, 'none'), d.tasks, d.last
            )
    end as problem
from windlass.runs r
join (
    select d.definition_id, count(1) as tasks, max(d.idx) as last
    from windlass.definition_tasks d
    group by d.definition_id
) d on d.definition_id = r.definition_id
left join (
    select t.run_id, count(1) as tasks, max(t.idx) as last
    from windlass.tasks t
    where {scope t.run_id}
    group by t.run_id
) t on t.run_id = r.id
where {scope r.id}
