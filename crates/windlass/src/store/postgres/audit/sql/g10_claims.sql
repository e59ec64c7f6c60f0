-- G10.claims: a lease comes from a claim that its worker's last sign of life knows of
--
-- A claim notes its number with the worker in the transaction that leases the tasks. A
-- lease with a larger number comes from a claim that could be made once more.
select
    case
        when l.claim_seq > k.last_claim then
            format(
                'task %s/%s was leased by claim %s of worker %s, whose last claim is %s', l.run_id,
                l.idx, l.claim_seq, l.worker_id, k.last_claim
            )
    end as problem
from windlass.leases l
join windlass.pulses k on k.worker_id = l.worker_id
where {scope l.run_id}
