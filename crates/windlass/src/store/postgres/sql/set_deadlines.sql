-- Says until when something must have happened: a run have ended, or its task have been claimed.
--
-- $1 uuid[]: runs   $2 int[]: tasks, -1 for the run itself   $3 bigint[]: the fences of tasks
-- $4 timestamptz[]: until when
insert into windlass.deadlines as d (run_id, idx, fence, due)
select k.run_id, k.idx, k.fence, k.due
from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::timestamptz[])
    as k (run_id, idx, fence, due)
order by k.run_id, k.idx
on conflict (run_id, idx) do update set fence = excluded.fence, due = excluded.due;
