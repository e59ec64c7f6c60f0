-- Starts runs in the transaction of the caller's, which need not be one of ours. The function
-- is explained in migrations/0002_start_run.sql; casting here, it takes what every driver has.
--
-- $1 text[]: ids   $2 text[]: workflows   $3 int[]: versions   $4 text[]: tenants
-- $5 text[]: inputs   $6 text[]: keys, null for none   $7 text[]: delays
-- $8 int[]: priorities   $9 text[]: metadata, null for none
select s.run_id::text
from windlass.start_runs(
    $1::text[]::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[]::json[],
    $6::text[], $7::text[]::interval[], $8::integer[], $9::text[]::jsonb[]
) s
order by s.position;
