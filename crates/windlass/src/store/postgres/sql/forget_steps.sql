-- Forgets what functions know that are run once more. One that failed with a call goes on from
-- that call; one that failed otherwise keeps all; any other task begins anew.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked
-- $3 text[], $4 text[]: codes and messages of those that failed
delete from windlass.steps s
where s.ctid = any(array(
    select p.place
    from unnest($1::uuid[], $2::integer[], $3::text[], $4::text[]) as k (run_id, idx, code, message)
    cross join lateral (
        select max(x.number) as number
        from windlass.steps x
        where x.run_id = k.run_id and x.idx = k.idx and x.failure is not null
            and x.failure ->> 'code' = k.code
            and position(x.failure ->> 'message' in k.message) > 0
    ) f
    cross join lateral (
        select x.ctid as place
        from windlass.steps x
        where x.run_id = k.run_id and x.idx = k.idx
            and (
                k.code is null
                or f.number is not null and (x.number is null or x.number >= f.number)
            )
        offset 0
    ) p
));
