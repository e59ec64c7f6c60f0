-- Forgets the last sign of life of a worker that is no more, and hands its marks to the one
-- that all such share. Of its marks the largest of a level counts, and smaller ones are
-- forgotten.
--
-- $1 uuid: the worker, which the caller has locked
with last_pulse as (
    delete from windlass.pulses where worker_id = $1
),
left_marks as (
    delete from windlass.marks m where m.worker_id = $1 returning m.level_id, m.tag
),
kept as (
    insert into windlass.marks (level_id, worker_id, tag)
    select m.level_id, '00000000-0000-0000-0000-000000000000', m.tag
    from left_marks m
    order by m.level_id
    on conflict (worker_id, level_id, tag) do nothing
)
delete from windlass.marks
where ctid = any(array(
    select p.place
    from left_marks m
    cross join lateral (
        select x.ctid as place
        from windlass.marks x
        where (x.worker_id, x.level_id, x.tag)
                >= ('00000000-0000-0000-0000-000000000000', m.level_id, -9223372036854775808)
            and (x.worker_id, x.level_id, x.tag)
                < ('00000000-0000-0000-0000-000000000000', m.level_id, m.tag)
        for update skip locked
    ) p
));
