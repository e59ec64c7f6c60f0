-- Keeps the inputs of runs.
--
-- $1 uuid[]: the runs   $2 text[]: their inputs
insert into windlass.inputs (run_id, input)
select k.run_id, k.input::json from unnest($1::uuid[], $2::text[]) as k (run_id, input);
