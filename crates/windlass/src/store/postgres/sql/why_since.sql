-- When a running task was claimed, if the newest 100 entries of the history of its run say so.
--
-- $1 uuid, $2 int: the task
select e.at
from (
    select x.id, x.at, x.lines
    from windlass.history x
    where x.run_id = $1
    order by x.id desc
    limit 100
) e
where E'\n' || e.lines ~ format(E'\n%s(\x02| started ready running )', $2)
order by e.id desc
limit 1;
