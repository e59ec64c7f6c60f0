-- engine.schedules: active schedules are readable and skip no times
--
-- The program computes the times: a schedule skips a time if its next time comes after one that is
-- still in the future.
select clock_timestamp() as now, s.id, s.tenant, s.name, s.workflow, s.version, s.priority, s.state,
    s.owner, s.cadence::text as cadence, s.missed, s.overlap, s.jitter_micros, s.grace_micros,
    s.starts_at, s.ends_at, s.created_at, s.next_at, s.last_at, s.queued_at, s.input::text as input
from windlass.schedules s
where s.state = 'active'
order by s.tenant, s.name
