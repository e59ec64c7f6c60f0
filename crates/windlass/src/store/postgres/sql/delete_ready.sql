-- Takes tasks off their queues.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked
delete from windlass.ready x
using unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
where x.run_id = k.run_id and x.idx = k.idx;
