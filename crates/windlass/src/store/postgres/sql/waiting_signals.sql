-- The signals of runs that nobody has taken, the oldest first.
--
-- $1 uuid[]: the runs, which the caller has locked   $2 text[]: the names
select s.run_id, s.seq, s.name, s.value::text as value
from windlass.signals s
where s.run_id = any($1) and not s.is_taken and s.name = any($2)
order by s.run_id, s.seq;
