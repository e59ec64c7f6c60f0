-- Deadlines that have passed, the earliest first; of those that passed together, that of a run
-- before those of its tasks.
--
-- $1 timestamptz: the time   $2 bigint: how many
select d.run_id, d.idx, d.fence, d.due
from windlass.deadlines d
where d.due <= $1
order by d.due, uuid_send(d.run_id), d.idx::bigint
limit $2;
