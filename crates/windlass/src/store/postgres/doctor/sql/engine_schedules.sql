-- engine.schedules: active schedules can be read and pass over none of their times
--
-- Their times are computed by the program: a schedule whose next time is behind another that is yet to
-- come passes that over.
select clock_timestamp() as now, s.id, s.tenant, s.name, s.workflow, s.version, s.priority, s.state,
    s.owner, s.cadence::text as cadence, s.missed, s.overlap, s.jitter_micros, s.grace_micros,
    s.starts_at, s.ends_at, s.created_at, s.next_at, s.last_at, s.queued_at, s.input::text as input
from windlass.schedules s
where s.state = 'active'
order by s.tenant, s.name
