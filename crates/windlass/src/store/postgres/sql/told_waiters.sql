-- The tasks of runs whose functions wait for a key to which a signal came.
--
-- $1 uuid[]: the runs, which the caller has locked
select distinct w.run_id, w.idx
from windlass.key_waiters w
where w.run_id = any($1) and w.is_told
order by w.run_id, w.idx;
