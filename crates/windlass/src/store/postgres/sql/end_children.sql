-- Notes which children have ended, and that others have not: they were retried since. Whether one
-- has is read without a lock: whoever ends or retries it later leaves another note.
--
-- $1 uuid[]: the children, whose parents the caller has locked
update windlass.children c
set has_ended = r.has_ended
from (
    select r.id, case when r.state <> 'running' then true end as has_ended
    from windlass.runs r
    where r.id = any($1)
) r
where c.child_id = r.id and c.has_ended is distinct from r.has_ended;
