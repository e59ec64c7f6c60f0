-- Forgets deadlines that have passed.
--
-- $1 uuid[], $2 int[]: what they were for, whose runs the caller has locked and may have given
-- others   $3 timestamptz: the time
delete from windlass.deadlines d
using unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
where d.run_id = k.run_id and d.idx = k.idx and d.due <= $3;
