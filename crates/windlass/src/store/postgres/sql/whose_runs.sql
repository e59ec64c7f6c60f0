-- Whose runs are.
--
-- $1 uuid[]: the runs
select r.id, r.tenant
from windlass.runs r
where r.id = any($1);
