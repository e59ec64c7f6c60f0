-- Those of some runs that are gone and archived.
--
-- $1 uuid[]: the runs
select a.id
from windlass.archived_runs a
where a.id = any($1);
