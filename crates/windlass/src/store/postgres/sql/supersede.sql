-- Notes at the places of tasks in lanes that others have them, by physical place, which cannot turn
-- into a scan of the table. The caller has locked the lanes.
--
-- $1 uuid[], $2 int[], $3 int[]: the tasks and the limits   $4 text: whether they were under way
update windlass.lane_places
set superseded = $4
where ctid = any(array(
    select x.place
    from unnest($1::uuid[], $2::integer[], $3::integer[]) as k (run_id, idx, limit_id)
    cross join lateral (
        select p.ctid as place
        from windlass.lane_places p
        where p.run_id = k.run_id and p.idx = k.idx and p.limit_id = k.limit_id
        offset 0
    ) x
));
