-- Forgets calls that waited, and for which their functions do not wait any more.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked   $3 int[]: the calls
delete from windlass.steps s
where s.ctid = any(array(
    select p.place
    from unnest($1::uuid[], $2::integer[], $3::integer[]) as k (run_id, idx, call)
    cross join lateral (
        select x.ctid as place
        from windlass.steps x
        where x.run_id = k.run_id and x.idx = k.idx and x.call = k.call and x.number is null
        offset 0
    ) p
));
