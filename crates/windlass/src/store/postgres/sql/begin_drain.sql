-- Says that a worker was told to end. Returns a row if it is alive.
--
-- $1 uuid: the worker
with told as (
    update windlass.workers w
    set is_draining = true
    where w.id = $1 and w.state = 'live' and not w.is_draining
)
select from windlass.workers w
where w.id = $1 and w.state = 'live';
