-- Locks all leases of runs, and so waits for what is being recorded under them: whoever looks
-- afterwards sees it.
--
-- $1 uuid[]: the runs, which the caller has locked
select l.idx from windlass.leases l where l.run_id = any($1) order by l.run_id, l.idx for update;
