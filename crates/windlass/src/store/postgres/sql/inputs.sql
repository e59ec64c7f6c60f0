-- The inputs and rounds of runs.
--
-- $1 uuid[]: the runs
select r.id, r.input::text, r.round from windlass.runs r where r.id = any($1);
