-- Forgets the children of calls that are made once more.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked and whose steps were forgotten
delete from windlass.children c
where c.child_id = any(array(
    select x.child_id
    from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
    join windlass.children x on x.run_id = k.run_id and x.idx = k.idx
    where not exists (
        select
        from windlass.steps s
        where s.run_id = x.run_id and s.idx = x.idx and s.call = x.call and s.number is not null
    )
));
