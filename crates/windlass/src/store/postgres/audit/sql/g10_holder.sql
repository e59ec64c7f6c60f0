-- G10.holder: a leased task belongs to a worker that is there and not dead
--
-- The reaper finds the tasks of lost workers by way of the workers. A lease without one, or
-- of one that is dead and done with, is found by nobody.
select
    case
        when k.id is null then
            format('task %s/%s is leased to worker %s, which does not exist', l.run_id, l.idx,
                l.worker_id)
        when k.state = 'dead' then
            format('task %s/%s is leased to worker %s, which is dead', l.run_id, l.idx, l.worker_id)
    end as problem
from windlass.leases l
left join windlass.workers k on k.id = l.worker_id
where {scope l.run_id}
