-- Locks runs that wait for their admission, and notes that wait for their delivery, the oldest
-- first, and passes over those that others have.
--
-- $1 bigint: from which number on to look   $2 bigint: how many
select s.seq, s.run_id, (extract(epoch from s.delay) * 1000000)::bigint as delay_micros,
    s.purpose, s.child_id
from windlass.staged s
where s.seq >= $1
order by s.seq
limit $2
for update skip locked;
