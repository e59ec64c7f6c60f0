-- Waits for whoever changes a run, and keeps others from it until the end of the
-- transaction.
--
-- $1 uuid: the run
select
from windlass.runs r
where r.id = $1
for share;
