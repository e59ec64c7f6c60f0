-- Notes which children of tasks have ended. Whether one has is read without a lock: one that
-- ends later leaves a note for the next sweep.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked
update windlass.children c
set has_ended = true
where c.child_id = any(array(
    select x.child_id
    from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
    join windlass.children x on x.run_id = k.run_id and x.idx = k.idx and x.has_ended is null
    cross join lateral (
        select r.state from windlass.runs r where r.id = x.child_id and r.state <> 'running' offset 0
    ) r
));
