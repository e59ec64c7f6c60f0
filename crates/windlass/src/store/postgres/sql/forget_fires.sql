-- Forgets the oldest lines of the histories of schedules, but not those whose runs may be under way.
--
-- $1 bigint[]: the schedules   $2 bigint: how many lines are kept of each
delete from windlass.schedule_fires f
using unnest($1) t (id)
cross join lateral (
    select x.seq
    from windlass.schedule_fires x
    where x.schedule_id = t.id
    order by x.seq desc
    limit 1
    offset $2
) old
where f.schedule_id = t.id and f.seq <= old.seq and not f.is_open;
