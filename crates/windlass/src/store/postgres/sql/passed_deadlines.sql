-- Those of some deadlines that have still passed. The caller has locked their runs, so that none is
-- retried meanwhile and given another.
--
-- `offset 0` makes each lookup one by the primary key: by its time, one would read all that have
-- passed.
--
-- $1 uuid[], $2 int[]: what they were for   $3 timestamptz: the time
select k.run_id, k.idx
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
join lateral (
    select d.due
    from windlass.deadlines d
    where d.run_id = k.run_id and d.idx = k.idx
    offset 0
) d on d.due <= $3;
