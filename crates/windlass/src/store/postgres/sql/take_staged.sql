-- Locks runs that wait for their admission, the oldest first, and passes over those that
-- others have.
--
-- $1 bigint: how many
select s.seq, s.run_id, (extract(epoch from s.delay) * 1000000)::bigint as delay_micros
from windlass.staged s
order by s.seq
limit $1
for update skip locked;
