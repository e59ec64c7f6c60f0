-- Schedules whose time has come, the earliest first, and then those of which a time waits and no run
-- that was never over is under way. Locks nothing: they are looked at again when they are locked.
--
-- $1 timestamptz: the time   $2 bigint: how many of each   $3 bigint[]: those that are left out
(
    select s.id, s.tenant, s.name
    from windlass.schedules s
    where s.state = 'active' and s.due_at is not null and s.due_at <= $1 and s.id <> all($3)
    order by s.due_at, s.id
    limit $2
)
union all
(
    select s.id, s.tenant, s.name
    from windlass.schedules s
    where s.state = 'active'
        and s.queued_at is not null
        and (s.due_at is null or s.due_at > $1)
        and s.id <> all($3)
        and (
            select f.seq
            from windlass.schedule_fires f
            where f.schedule_id = s.id
                and f.is_open
                and (select r.state from windlass.runs r where r.id = f.run_id) = 'running'
            limit 1
        ) is null
    order by s.id
    limit $2
);
