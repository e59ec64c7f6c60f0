-- The inputs of runs.
--
-- $1 uuid[]: the runs
select i.run_id, i.input::text from windlass.inputs i where i.run_id = any($1);
