-- Gives tasks due times.
--
-- $1 uuid[], $2 int[]: the tasks   $3 timestamptz[]: due times   $4 bigint[]: fences
-- $5 int[]: attempts   $6 int[]: the most attempts   $7 bigint[], $8 text[]: the newest answers
-- $9 bool[]: which wait for more than the time
insert into windlass.timers (
    run_id, idx, due, seq, fence, attempt, max_attempts, answered_fence, answered_verb,
    is_waiting
)
select p.run_id, p.idx, p.due, nextval('windlass.timer_seq'),
    p.fence, p.attempt, p.max_attempts, p.answered_fence, p.answered_verb,
    nullif(p.is_waiting, false)
from (
    select k.*
    from unnest(
        $1::uuid[], $2::integer[], $3::timestamptz[], $4::bigint[], $5::integer[],
        $6::integer[], $7::bigint[], $8::text[], $9::boolean[]
    ) with ordinality as k (
        run_id, idx, due, fence, attempt, max_attempts, answered_fence, answered_verb,
        is_waiting, n
    )
    order by k.n
) p;
