-- When the next schedule fires, or a run may be over that a nominal time waits for.
--
-- $1 timestamptz: now   $2 bigint[]: those that are left out
select least(
    (
        select s.due_at
        from windlass.schedules s
        where s.state = 'active' and s.due_at is not null and s.id <> all($2)
        order by s.due_at, s.id
        limit 1
    ),
    (
        select $1 + interval '1 second'
        from windlass.schedules s
        where s.state = 'active' and s.queued_at is not null and s.id <> all($2)
        order by s.id
        limit 1
    )
);
