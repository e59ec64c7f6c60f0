-- The runs of schedules that may not be over, and whether they are.
--
-- $1 bigint[]: the schedules
select f.seq, f.schedule_id, f.run_id, coalesce(r.state = 'running', false) as is_running
from windlass.schedule_fires f
left join windlass.runs r on r.id = f.run_id
where f.schedule_id = any($1) and f.is_open
order by f.seq;
