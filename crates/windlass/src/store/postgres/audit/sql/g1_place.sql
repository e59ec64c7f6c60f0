-- G1.place: an active task has exactly one place: ready, leased or waiting for a time
--
-- A task without a place is lost: no claim, no reaper and no timer will ever find it. One
-- with two places can run twice at once. The places are three tables, so no constraint
-- counts across them; this does. Without a row that says that it is active, a task that has
-- no place looks pending; G1.unblocked finds those.
select
    case
        when num_nonnulls(q.run_id, l.run_id, w.run_id) <> 1 then
            format(
                'task %s/%s is active and stands in %s', t.run_id, t.idx,
                coalesce(
                    nullif(
                        concat_ws(
                            ' and ',
                            case when q.run_id is not null then 'ready' end,
                            case when l.run_id is not null then 'leases' end,
                            case when w.run_id is not null then 'timers' end
                        ),
                        ''
                    ),
                    'no queue'
                )
            )
    end as problem
from windlass.tasks t
left join windlass.ready q on q.run_id = t.run_id and q.idx = t.idx
left join windlass.leases l on l.run_id = t.run_id and l.idx = t.idx
left join windlass.timers w on w.run_id = t.run_id and w.idx = t.idx
where t.state = 'active' and {scope t.run_id}
