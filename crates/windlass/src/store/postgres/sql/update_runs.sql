-- Writes runs.
--
-- It writes by physical place, which cannot turn into a scan of the table; nobody else
-- writes locked runs.
--
-- $1 uuid[]: the runs, which the caller has locked   $2 text[]: states   $3 int[]: rounds
-- $4 int[]: open tasks   $5 int[]: failed tasks   $6 timestamptz[]: ends, null for none
update windlass.runs r
set state = k.state,
    round = k.round,
    open_tasks = k.open_tasks,
    failed_tasks = k.failed_tasks,
    ended_at = k.ended_at
from unnest(
    $1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::integer[], $6::timestamptz[]
) as k (id, state, round, open_tasks, failed_tasks, ended_at)
cross join lateral (
    select x.ctid as place from windlass.runs x where x.id = k.id offset 0
) p
where r.ctid = p.place;
