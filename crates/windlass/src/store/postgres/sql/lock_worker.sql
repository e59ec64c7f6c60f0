-- Locks a worker.
--
-- $1 uuid: the worker
select w.state, w.is_draining, (extract(epoch from w.lease) * 1000000)::bigint as lease_micros
from windlass.workers w
where w.id = $1
for no key update;
