-- The oldest claim of which a worker still holds a task.
--
-- $1 uuid: the worker, which the caller has locked   $2 bigint: from which claim on to look
select l.claim_seq
from windlass.leases l
where l.worker_id = $1 and l.claim_seq >= $2
order by l.claim_seq
limit 1;
