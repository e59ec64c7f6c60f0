-- The runs of schedules that may not be over, and whether they are; and those that are under way
-- again, or since before it mattered, as far as the history goes back.
--
-- $1 bigint[]: the schedules   $2 bigint[]: those for which it matters what is under way
select o.seq, o.schedule_id, o.run_id, o.is_open, o.is_running
from (
    select f.seq, f.schedule_id, f.run_id, true as is_open,
        coalesce((select r.state from windlass.runs r where r.id = f.run_id) = 'running', false)
            as is_running
    from windlass.schedule_fires f
    where f.schedule_id = any($1) and f.is_open
    union all
    select f.seq, f.schedule_id, f.run_id, false, true
    from windlass.schedule_fires f
    where f.schedule_id = any($2)
        and not f.is_open
        and (select r.state from windlass.runs r where r.id = f.run_id) = 'running'
) o
order by o.seq;
