-- Notes that nominal times that waited do so no more: they were skipped, as a run was not over.
--
-- $1 bigint[]: the schedules
update windlass.schedule_fires f
set result = 'overlapped'
where f.schedule_id = any($1) and f.result = 'queued';
