-- Says that a worker was told to end.
--
-- $1 uuid: the worker
update windlass.workers w
set is_draining = true
where w.id = $1 and w.state = 'live' and not w.is_draining;
