-- Forgets what functions know that are run once more. One that failed goes on from the last
-- call that failed; any other begins anew.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked   $3 bool[]: which failed
delete from windlass.steps s
where s.ctid = any(array(
    select p.place
    from unnest($1::uuid[], $2::integer[], $3::boolean[]) as k (run_id, idx, has_failed)
    cross join lateral (
        select max(x.number) as number
        from windlass.steps x
        where x.run_id = k.run_id and x.idx = k.idx and x.failure is not null
    ) f
    cross join lateral (
        select x.ctid as place
        from windlass.steps x
        where x.run_id = k.run_id and x.idx = k.idx
            and (
                not k.has_failed
                or f.number is not null and (x.number is null or x.number >= f.number)
            )
        offset 0
    ) p
));
