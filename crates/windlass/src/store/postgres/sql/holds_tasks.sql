-- Whether a worker holds any task.
--
-- $1 uuid: the worker, which the caller has locked
select exists (select from windlass.leases l where l.worker_id = $1);
