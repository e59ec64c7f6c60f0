-- Locks the active schedules that a program declared and declares no more, in the order of their
-- numbers, and waits for whoever has them.
--
-- $1 text: the owner   $2 text[], $3 text[]: tenants and names of what it declares   $4 text: the tenant,
-- null for all
select s.id, s.tenant, s.name, s.workflow, s.version, s.priority, s.state, s.owner,
    s.cadence::text, s.missed, s.overlap, s.jitter_micros, s.grace_micros, s.starts_at, s.ends_at,
    s.created_at, s.next_at, s.last_at, s.queued_at, s.input::text
from windlass.schedules s
where s.owner = $1
    and s.state = 'active'
    and ($4::text is null or s.tenant = $4)
    and not exists (
        select from unnest($2, $3) d (tenant, name)
        where d.tenant = s.tenant and d.name = s.name
    )
order by s.id
for no key update;
