-- Notes that runs of schedules are over.
--
-- $1 bigint[]: their lines
update windlass.schedule_fires f
set is_open = false
where f.seq = any($1);
