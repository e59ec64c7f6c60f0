-- Those of some nominal times of a schedule that have started runs.
--
-- $1 bigint: the schedule   $2 timestamptz[]: the nominal times
select f.nominal_at
from windlass.schedule_fires f
where f.schedule_id = $1
    and f.nominal_at = any($2)
    and f.by <> 'trigger'
    and f.result = 'started';
