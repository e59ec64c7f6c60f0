-- Locks the row of a duty for share, if the term is its leader's, and reads the time. No row
-- if the term is over. Until the transaction ends nobody can begin the next one.
--
-- $1 text: the duty   $2 uuid: the candidate   $3 bigint: the term
select clock_timestamp()
from windlass.leaders l
where l.duty = $1 and l.holder = $2 and l.term = $3 and not l.is_given_up
for share;
