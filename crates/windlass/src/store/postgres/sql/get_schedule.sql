-- One schedule.
--
-- $1 text: the tenant   $2 text: the name
select s.id, s.tenant, s.name, s.workflow, s.version, s.priority, s.state, s.owner,
    s.cadence::text, s.missed, s.overlap, s.jitter_micros, s.grace_micros, s.starts_at, s.ends_at,
    s.created_at, s.next_at, s.last_at, s.queued_at, s.input::text
from windlass.schedules s
where s.tenant = $1 and s.name = $2;
