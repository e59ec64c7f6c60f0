-- Forgets that functions wait for signals to keys.
--
-- It deletes by physical place, which cannot turn into a scan of the table. Nobody moves what is
-- locked to another place.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs and waiters the caller has locked
delete from windlass.key_waiters
where ctid = any(array(
    select p.place
    from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
    cross join lateral (
        select x.ctid as place
        from windlass.key_waiters x
        where x.run_id = k.run_id and x.idx = k.idx
        offset 0
    ) p
));
