-- rows.definition-of-run: every run has a definition, of its workflow and version
--
-- The reference has no foreign key: it would lock the definition with every start.
select
    case
        when d.id is null then
            format('run %s has definition %s, which does not exist', r.id, r.definition_id)
        when (d.workflow, d.version) is distinct from (r.workflow, r.version) then
            format(
                'run %s of workflow "%s" version %s has the definition of "%s" version %s', r.id,
                r.workflow, r.version, d.workflow, d.version
            )
    end as problem
from windlass.runs r
left join windlass.definitions d on d.id = r.definition_id
where {scope r.id}
