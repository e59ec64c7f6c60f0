-- Notes that signals were taken; what they say is in the steps that took them.
--
-- $1 uuid[], $2 bigint[]: the signals, whose runs the caller has locked
update windlass.signals s
set is_taken = true, value = 'null'
from unnest($1::uuid[], $2::bigint[]) as k (run_id, seq)
where s.run_id = k.run_id and s.seq = k.seq and not s.is_taken;
