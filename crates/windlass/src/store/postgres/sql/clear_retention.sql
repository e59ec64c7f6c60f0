-- Deletes a rule, and remembers that there was one; a row if there was.
--
-- $1 text: the workflow, empty for all   $2 text: the state
with gone as (
    delete from windlass.retention where workflow = $1 and state = $2 returning workflow
), remembered as (
    update windlass.settings set had_retention = true
    where not had_retention and exists (select from gone)
)
select g.workflow from gone g;
