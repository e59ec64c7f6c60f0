-- Forgets that nominal times waited: what became of them is written down instead.
--
-- $1 bigint[]: the schedules   $2 timestamptz[]: the nominal times
delete from windlass.schedule_fires f
using unnest($1, $2) t (schedule_id, nominal_at)
where f.schedule_id = t.schedule_id and f.nominal_at = t.nominal_at and f.result = 'queued';
