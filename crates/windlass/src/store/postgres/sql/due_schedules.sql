-- Locks schedules whose time has come, the earliest first, and those of which a time waits and no
-- run is known to be under way. Leaves out those that others have: a sweep comes again.
--
-- $1 timestamptz: the time   $2 bigint: how many
select s.id, s.tenant, s.name, s.workflow, s.version, s.priority, s.state, s.owner,
    s.cadence::text, s.missed, s.overlap, s.jitter_micros, s.grace_micros, s.starts_at, s.ends_at,
    s.created_at, s.next_at, s.last_at, s.queued_at, s.input::text
from windlass.schedules s
where s.state = 'active'
    and (
        s.due_at <= $1
        or s.queued_at is not null
            and not exists (
                select from windlass.schedule_fires f
                join windlass.runs r on r.id = f.run_id
                where f.schedule_id = s.id and f.is_open and r.state = 'running'
            )
    )
order by s.due_at, s.id
limit $2
for no key update skip locked;
