-- Locks the notes of who waits for signals to keys, in their order, and waits for those who tell
-- them of a signal.
--
-- $1 uuid[], $2 int[]: the tasks in their order, whose runs the caller has locked
select w.call
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
cross join lateral (
    select x.call
    from windlass.key_waiters x
    where x.run_id = k.run_id and x.idx = k.idx
    order by x.call
    for update
) w;
