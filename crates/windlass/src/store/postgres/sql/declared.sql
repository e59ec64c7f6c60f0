-- What a worker that is not dead declared when it joined, which never changes.
--
-- $1 uuid: the worker
select w.id, w.slots, w.workflows, w.versions
from windlass.workers w
where w.id = $1 and w.state <> 'dead';
