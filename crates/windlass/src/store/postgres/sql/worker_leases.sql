-- What a worker holds.
--
-- $1 uuid: the worker
select l.run_id, l.idx, l.fence, l.claim_seq
from windlass.leases l
where l.worker_id = $1
order by l.run_id, l.idx;
