-- Forgets checkpoints, of tasks that have ended or begin anew.
--
-- It deletes by physical place, which cannot turn into a scan of the table.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked
delete from windlass.checkpoints
where ctid = any(array(
    select p.place
    from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
    cross join lateral (
        select x.ctid as place
        from windlass.checkpoints x
        where x.run_id = k.run_id and x.idx = k.idx
        offset 0
    ) p
));
