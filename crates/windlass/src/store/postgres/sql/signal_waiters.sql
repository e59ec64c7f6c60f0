-- The tasks of a run whose functions wait for a signal.
--
-- $1 uuid: the run, which the caller has locked   $2 text: the name of the signal
select distinct s.run_id, s.idx
from windlass.steps s
where s.run_id = $1 and s.number is null and s.kind = 'signal' and s.name = $2
    and s.key is null;
