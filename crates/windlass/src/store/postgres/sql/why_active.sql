-- The first tasks of a run that are under way: in a queue, with a worker, or waiting for a time
-- or something else. A run that goes on has at least one, unless it is staged.
--
-- $1 uuid: the run   $2 bigint: how many
select x.idx
from (
    (select l.idx from windlass.leases l where l.run_id = $1 order by l.idx limit $2)
    union all
    (select q.idx from windlass.ready q where q.run_id = $1 order by q.idx limit $2)
    union all
    (select w.idx from windlass.timers w where w.run_id = $1 order by w.idx limit $2)
) x
order by x.idx
limit $2;
