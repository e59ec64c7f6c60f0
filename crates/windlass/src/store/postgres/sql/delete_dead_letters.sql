-- Takes dead letters away: of tasks that go on or do not count any more, or that were discarded.
--
-- It deletes by physical place, which cannot turn into a scan of the table.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked
delete from windlass.dead_letters
where ctid = any(array(
    select p.place
    from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
    cross join lateral (
        select x.ctid as place
        from windlass.dead_letters x
        where x.run_id = k.run_id and x.idx = k.idx
        offset 0
    ) p
));
