-- The inputs, rounds and traces of runs.
--
-- $1 uuid[]: the runs
select
    r.id, r.input::text, r.round,
    r.metadata ->> 'traceparent' as traceparent, r.metadata ->> 'tracestate' as tracestate
from windlass.runs r
where r.id = any($1);
