-- G1.staged-late: staged runs are admitted soon
--
-- A run that was started in a user's transaction is admitted right after the commit. One
-- that is still staged long after it was made has nobody who admits it, or was committed
-- just now by a transaction that took that long.
select
    case
        when r.created_at < {now} - {late_after} then
            format('run %s was started at %s and is still staged', s.run_id, r.created_at)
    end as problem
from windlass.staged s
join windlass.runs r on r.id = s.run_id
where s.purpose is null and {scope s.run_id}
