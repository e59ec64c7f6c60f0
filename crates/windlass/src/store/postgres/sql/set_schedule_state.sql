-- Pauses or resumes a schedule that the transaction has locked.
--
-- $1 bigint: the schedule   $2 text: the state   $3, $4 timestamptz: its next time and when that is
-- served
update windlass.schedules s
set state = $2, next_at = $3, due_at = $4
where s.id = $1
returning s.id;
