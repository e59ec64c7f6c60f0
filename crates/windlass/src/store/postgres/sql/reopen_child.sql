-- Notes that a run that others wait for has not ended after all.
--
-- $1 uuid: the run
update windlass.children c set has_ended = null where c.child_id = $1 and c.has_ended;
