-- Locks timers that are due, the earliest first, and passes over those that others have. What
-- they say of their tasks stays true until the end of the transaction.
--
-- $1 timestamptz: from when on to look   $2 timestamptz: the time   $3 bigint: how many
select
    w.run_id, w.idx, w.due, w.fence, w.attempt, w.answered_fence, w.answered_verb,
    coalesce(w.is_waiting, false) as is_waiting
from windlass.timers w
where w.due >= $1 and w.due <= $2
order by w.due, w.seq
limit $3
for update skip locked;
