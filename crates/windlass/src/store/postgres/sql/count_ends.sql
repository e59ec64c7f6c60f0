-- Locks runs as `lock_runs.sql` does, in the order of their ids, and writes what the success of
-- one task of each most likely makes of them: one open task less, and the end of the run if it
-- was the last. Answers the runs as they were. The caller decides what becomes of them, and
-- rolls back if that is something else, or if one is left out.
--
-- It is sent with the beginning of the transaction, and does nothing if there is none. To lock
-- first and write later costs a lookup and 56 bytes of WAL more for each run. A time is read
-- when its run is locked, and so not after the time that the history has.
--
-- $1 uuid[]: the runs   $2 timestamptz: the time, null for that of the clock
update windlass.runs r
set open_tasks = r.open_tasks - 1,
    state = case when r.open_tasks = 1 then 'succeeded' else r.state end,
    ended_at = case when r.open_tasks = 1 then coalesce($2, clock_timestamp()) end
where r.id = any($1)
    and r.state = 'running'
    and r.open_tasks >= 1
    and r.failed_tasks = 0
    and current_setting('transaction_deferrable') = 'on'
returning r.id, r.definition_id, r.tenant, 'running' as state, r.round,
    r.open_tasks + 1 as open_tasks, r.failed_tasks, r.priority, r.lane_keys::text as lane_keys;
