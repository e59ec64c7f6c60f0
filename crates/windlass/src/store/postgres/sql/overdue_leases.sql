-- Leases whose visibility timeout has passed, the longest overdue first.
--
-- $1 timestamptz: the time   $2 bigint: the most of them
select l.run_id, l.idx, l.worker_id, l.fence, l.take_back_at
from windlass.leases l
where l.take_back_at <= $1
order by l.take_back_at, l.run_id, l.idx
limit $2;
