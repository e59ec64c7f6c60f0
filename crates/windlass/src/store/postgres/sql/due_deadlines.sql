-- Deadlines that have passed, the earliest first.
--
-- $1 timestamptz: the time   $2 bigint: how many
select d.run_id, d.idx, d.fence, d.due
from windlass.deadlines d
where d.due <= $1
order by d.due
limit $2;
