-- Deletes a rule; a row if there was one.
--
-- $1 text: the workflow, empty for all   $2 text: the state
delete from windlass.retention where workflow = $1 and state = $2 returning workflow;
