-- A page of schedules, by tenant and name.
--
-- $1 text: only of this tenant, null for all   $2 text, $3 text: behind which tenant and name, null
-- for the first page   $4 bigint: how many
select s.id, s.tenant, s.name, s.workflow, s.version, s.priority, s.state, s.owner,
    s.cadence::text, s.missed, s.overlap, s.jitter_micros, s.grace_micros, s.starts_at, s.ends_at,
    s.created_at, s.next_at, s.last_at, s.queued_at, s.input::text
from windlass.schedules s
where ($1::text is null or s.tenant = $1)
    and ($2::text is null or (s.tenant collate "C", s.name collate "C") > ($2, $3))
order by s.tenant collate "C", s.name collate "C"
limit $4;
