-- Writes history, in the order given.
--
-- $1 uuid[]: runs   $2 timestamptz: the time   $3 text[]: kinds   $4 int[]: tasks, null for the
-- run's own   $5 text[], $6 text[]: states before and after   $7 bigint[]: fences
-- $8 int[]: attempts   $9 text[]: details, null for none
insert into windlass.events (run_id, at, kind, idx, from_state, to_state, fence, attempt, detail)
select k.run_id, $2, k.kind, k.idx, k.from_state, k.to_state, k.fence, k.attempt, k.detail::json
from unnest(
    $1::uuid[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::bigint[], $8::integer[],
    $9::text[]
) with ordinality as k (run_id, kind, idx, from_state, to_state, fence, attempt, detail, n)
order by k.n;
