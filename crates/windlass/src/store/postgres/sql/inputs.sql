-- The inputs of runs.
--
-- $1 uuid[]: the runs
select r.id, r.input::text from windlass.runs r where r.id = any($1);
