-- Writes down what became of nominal times, in their order. One that has started its run already,
-- by a backfill that a clock which went back made early, is not written again.
--
-- $1 bigint[]: the schedules   $2 timestamptz[]: the nominal times   $3 timestamptz: now
-- $4 text[]: what let them come   $5 text[]: what became of them   $6 uuid[]: the runs
-- $7 boolean[]: whether it matters when those are over   $8 timestamptz[], $9 integer[]: the first
-- of those that were missed, and how many   $10 text[]: why a run could not be started
insert into windlass.schedule_fires (
    schedule_id, nominal_at, at, by, result, run_id, is_open, first_at, count, reason
)
select t.schedule_id, t.nominal_at, $3, t.by, t.result, t.run_id, t.is_open, t.first_at, t.count,
    t.reason
from unnest($1, $2, $4, $5, $6, $7, $8, $9, $10) with ordinality
    t (schedule_id, nominal_at, by, result, run_id, is_open, first_at, count, reason, place)
order by t.place
on conflict do nothing;
