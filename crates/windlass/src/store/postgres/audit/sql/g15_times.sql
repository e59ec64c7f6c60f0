-- G15.times: each nominal time of a schedule is decided once, and the next is behind all of them
--
-- A nominal time with two lines fired twice, which the unique indexes should make impossible. A next
-- time that is not behind what was decided fires again what has fired.
select
    case
        when s.next_at <= s.last_at then
            format('schedule %s fires next at %s, it fired last for %s', s.name, s.next_at, s.last_at)
        when s.last_at < max(f.nominal_at) filter (where f.by = 'time') then
            format(
                'schedule %s has decided %s, its last time is %s', s.name,
                max(f.nominal_at) filter (where f.by = 'time'), s.last_at
            )
        when s.next_at <= max(f.nominal_at) filter (where f.by = 'time') then
            format(
                'schedule %s has decided %s, which it fires next', s.name,
                max(f.nominal_at) filter (where f.by = 'time')
            )
        when count(f.seq) filter (where f.by <> 'trigger' and f.result = 'started')
            > count(distinct f.nominal_at) filter (where f.by <> 'trigger' and f.result = 'started')
        then format('schedule %s has started two runs for one nominal time', s.name)
        when s.queued_at is not null and not exists (
            select from windlass.schedule_fires q
            where q.schedule_id = s.id and q.result = 'queued' and q.nominal_at = s.queued_at
        ) and count(f.seq) < 100 then
            format('%s of schedule %s waits, and nothing says so', s.queued_at, s.name)
    end as problem
from windlass.schedules s
left join windlass.schedule_fires f on f.schedule_id = s.id
group by s.id
