-- What a worker holds.
--
-- $1 uuid: the worker   $2 bigint: from which claim on to look
select h.run_id, h.idx, h.fence, h.claim_seq
from (
    select l.run_id, l.idx, l.fence, l.claim_seq
    from windlass.leases l
    where l.worker_id = $1 and l.claim_seq >= $2
    offset 0
) h
order by h.run_id, h.idx;
