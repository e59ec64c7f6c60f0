-- Moves schedules that the transaction has locked on to their next times, and to their states.
--
-- $1 bigint[]: the schedules   $2 text[]: their states   $3, $4, $5, $6 timestamptz[]: the next time
-- of each, when that is served, the last time, and the time that waits
update windlass.schedules s
set state = t.state, next_at = t.next_at, due_at = t.due_at, last_at = t.last_at,
    queued_at = t.queued_at
from unnest($1, $2, $3, $4, $5, $6) t (id, state, next_at, due_at, last_at, queued_at)
where s.id = t.id;
