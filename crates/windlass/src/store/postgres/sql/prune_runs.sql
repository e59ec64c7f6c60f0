-- Deletes runs that are over, with all that belongs to them.
--
-- $1 uuid[]: the runs, which the caller has locked
with gone_tasks as (
    delete from windlass.task_rows where run_id = any($1)
), gone_history as (
    delete from windlass.history where run_id = any($1)
), gone_steps as (
    delete from windlass.steps where run_id = any($1)
), gone_signals as (
    delete from windlass.signals where run_id = any($1)
), gone_children as (
    delete from windlass.children where run_id = any($1)
), gone_notes as (
    delete from windlass.notes where run_id = any($1)
), gone_checkpoints as (
    delete from windlass.checkpoints where run_id = any($1)
), gone_deadlines as (
    delete from windlass.deadlines where run_id = any($1)
), gone_letters as (
    delete from windlass.dead_letters where run_id = any($1)
)
delete from windlass.runs where id = any($1);
