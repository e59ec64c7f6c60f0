-- Locks those of some schedules whose time has come still, or of which a time waits, the earliest
-- first. Leaves out those that others have: a sweep comes again.
--
-- $1 timestamptz: the time   $2 bigint[]: the schedules
select s.id, s.tenant, s.name, s.workflow, s.version, s.priority, s.state, s.owner,
    s.cadence::text, s.missed, s.overlap, s.jitter_micros, s.grace_micros, s.starts_at, s.ends_at,
    s.created_at, s.next_at, s.last_at, s.queued_at, s.input::text
from windlass.schedules s
where s.id = any($2) and s.state = 'active' and (s.due_at <= $1 or s.queued_at is not null)
order by s.due_at, s.id
for no key update skip locked;
