-- Writes tasks that have no row yet and ended alike, without a failure or an output, as those
-- of a batch mostly do.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked   $3 text: the state
-- $4 bigint: the fence   $5 int: the attempt   $6, $7, $8 int: parents pending, failed, skipped,
-- null for 0   $9 bigint, $10 text: the newest answer, the fence null if it is the task's
insert into windlass.task_rows (
    run_id, idx, state, fence, attempt, pending_parents, failed_parents, skipped_parents,
    answered_fence, answered_verb
)
select k.run_id, k.idx, $3, $4, $5, $6, $7, $8, $9, $10
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx);
