-- Locks timers that are due, the earliest first, and passes over those that others have.
--
-- $1 timestamptz: the time   $2 bigint: how many
select w.run_id, w.idx
from windlass.timers w
where w.due <= $1
order by w.due, w.seq
limit $2
for update skip locked;
