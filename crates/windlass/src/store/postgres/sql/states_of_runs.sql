-- The states of those of some runs that are there.
--
-- $1 uuid[]: the runs
select r.id, r.state from windlass.runs r where r.id = any($1);
