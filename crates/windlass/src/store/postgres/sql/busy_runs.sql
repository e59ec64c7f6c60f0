-- Locks the leases of runs that are to be cancelled, and answers the runs of which one is locked
-- by others, as by a transaction of a user's: a sweep comes again, and must not wait for it.
--
-- $1 uuid[]: the runs, which the caller has locked
with free as materialized (
    select l.run_id, l.idx
    from windlass.leases l
    where l.run_id = any($1)
    order by l.run_id, l.idx
    for update skip locked
)
select distinct l.run_id
from windlass.leases l
where l.run_id = any($1)
    and not exists (select from free f where f.run_id = l.run_id and f.idx = l.idx);
