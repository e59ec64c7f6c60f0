-- How many children of calls are not known to have ended, for the calls that have some.
--
-- $1 uuid[], $2 int[]: the tasks
select c.run_id, c.idx, c.call, count(1) as open
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
join windlass.children c on c.run_id = k.run_id and c.idx = k.idx and c.has_ended is null
group by c.run_id, c.idx, c.call;
