-- Keeps outputs.
--
-- $1 uuid[], $2 int[]: the tasks   $3 text[]: their outputs
insert into windlass.outputs (run_id, idx, output)
select k.run_id, k.idx, k.output::json
from unnest($1::uuid[], $2::integer[], $3::text[]) as k (run_id, idx, output);
