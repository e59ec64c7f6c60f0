-- Notes that children have ended.
--
-- $1 uuid[]: the children, whose parents the caller has locked
update windlass.children c
set has_ended = true
where c.child_id = any($1) and c.has_ended is null;
