-- The names of signals that nobody has taken.
--
-- $1 uuid[]: the runs, which the caller has locked
select distinct s.run_id, s.name
from windlass.signals s
where s.run_id = any($1) and not s.is_taken;
