//! Every statement of the store: the text is in a file of its name, the types of its
//! parameters are here.

use tokio_postgres::types::Type;

use super::pool::{Sql, sql};

sql!(CLOCK, "clock.sql", []);
sql!(STALE_PLACES, "stale_places.sql", [UUID, INT4, INT4, INT8]);
sql!(STRAY_ROW, "stray_row.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(UNDOABLE, "undoable.sql", [UUID_ARRAY, UUID_ARRAY]);
sql!(SET_DEADLINES, "set_deadlines.sql", [UUID_ARRAY, INT4_ARRAY, INT8_ARRAY, TIMESTAMPTZ_ARRAY]);
sql!(DUE_DEADLINES, "due_deadlines.sql", [TIMESTAMPTZ, INT8]);
sql!(PASSED_DEADLINES, "passed_deadlines.sql", [UUID_ARRAY, INT4_ARRAY, TIMESTAMPTZ]);
sql!(DELETE_DEADLINES, "delete_deadlines.sql", [UUID_ARRAY, INT4_ARRAY, TIMESTAMPTZ]);
sql!(LOCK_LEASES, "lock_leases.sql", [UUID_ARRAY]);
sql!(BUSY_RUNS, "busy_runs.sql", [UUID_ARRAY]);
sql!(UNDOABLE_TASKS, "undoable_tasks.sql", [UUID]);
sql!(LEADER_CLOCK, "leader_clock.sql", [TEXT, UUID, INT8]);
sql!(OUTLOOK, "outlook.sql", [TIMESTAMPTZ, TIMESTAMPTZ, INT8]);
sql!(
    RESIGN,
    "resign.sql",
    [
        UUID,
        TEXT_ARRAY,
        INT8_ARRAY,
        INT8_ARRAY,
        INT8_ARRAY,
        TIMESTAMPTZ_ARRAY,
        TEXT_ARRAY,
        INT8_ARRAY,
        INT8_ARRAY
    ]
);
sql!(ROLL_UP, "roll_up.sql", [INT8, INT8, TIMESTAMPTZ]);
sql!(NOTE_OLDEST, "note_oldest.sql", []);
sql!(LIST_QUEUES, "list_queues.sql", [TIMESTAMPTZ, INT8]);
sql!(LIST_LEADERS, "list_leaders.sql", []);
sql!(LIST_DUTIES, "list_duties.sql", []);
sql!(READ_DUTIES, "read_duties.sql", [TEXT_ARRAY]);
sql!(LOCK_DUTIES, "lock_duties.sql", [TEXT_ARRAY]);
sql!(LOCK_DUTY, "lock_duty.sql", [TEXT]);
sql!(INSERT_DUTIES, "insert_duties.sql", [TEXT_ARRAY, INT8_ARRAY, TIMESTAMPTZ]);
sql!(COUNT_DUTIES, "count_duties.sql", []);
sql!(
    PUT_DUTY,
    "put_duty.sql",
    [
        TEXT,
        INT8,
        TIMESTAMPTZ,
        INT8,
        UUID,
        TEXT,
        TIMESTAMPTZ,
        TIMESTAMPTZ,
        INT8,
        INT8,
        TIMESTAMPTZ,
        INT8,
        TEXT
    ]
);
sql!(RENEW_DUTIES, "renew_duties.sql", [TEXT_ARRAY, UUID_ARRAY, INT8_ARRAY, TIMESTAMPTZ, INT8]);
sql!(FORGET_DUTY, "forget_duty.sql", [TEXT]);

sql!(WHY_RUN, "why_run.sql", [UUID]);
sql!(WHY_ACTIVE, "why_active.sql", [UUID, INT8]);
sql!(WHY_FAILED, "why_failed.sql", [UUID, INT8]);
sql!(WHY_TASKS, "why_tasks.sql", [UUID, INT4_ARRAY]);
sql!(WHY_PARENTS, "why_parents.sql", [UUID, INT4_ARRAY, INT8]);
sql!(WHY_BEFORE, "why_before.sql", [TEXT, INT4, INT4, INT8, INT8, INT8]);
sql!(WHY_LANE, "why_lane.sql", [UUID, INT4, INT8, INT8]);
sql!(WHY_CALLS, "why_calls.sql", [UUID, INT4, INT8, INT8, INT4]);
sql!(WHY_CANCELLED, "why_cancelled.sql", [UUID]);
sql!(WHY_SINCE, "why_since.sql", [UUID, INT4]);
sql!(WHY_WORKERS, "why_workers.sql", [INT8, TEXT, TEXT]);

/// What follows sees one moment. It is no statement that can be prepared with `prepare`.
pub(super) const SNAPSHOT: Sql =
    Sql { name: "snapshot", text: include_str!("sql/snapshot.sql"), types: &[] };

/// What a candidate says and is answered, in one statement: the text is that of two files.
pub(super) const LEAD: Sql = Sql {
    name: "lead",
    text: concat!(
        "with look as (\n",
        include_str!("sql/outlook.sql"),
        "),\n",
        include_str!("sql/lead.sql")
    ),
    types: &[
        Type::TIMESTAMPTZ,
        Type::TIMESTAMPTZ,
        Type::INT8,
        Type::UUID,
        Type::TEXT,
        Type::INT8,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
    ],
};
sql!(COUNT_ENDS, "count_ends.sql", [UUID_ARRAY, TIMESTAMPTZ]);
sql!(LOCK_RUNS, "lock_runs.sql", [UUID_ARRAY]);
sql!(LOCK_FREE_LEASES, "lock_free_leases.sql", [UUID_ARRAY, INT4_ARRAY, INT8_ARRAY]);
sql!(LOCK_FREE_RUNS, "lock_free_runs.sql", [UUID_ARRAY]);
sql!(LOAD_TASKS, "load_tasks.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(LOCK_READY, "lock_ready.sql", [UUID]);
sql!(LOCK_LANES, "lock_lanes.sql", [INT4_ARRAY]);
sql!(LOCK_FREE_LANES, "lock_free_lanes.sql", [INT4_ARRAY]);
sql!(LANES, "lanes.sql", [INT4_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY]);
sql!(PLACES, "places.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(
    INSERT_LANES,
    "insert_lanes.sql",
    [
        INT4_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY,
        INT8_ARRAY,
        INT4_ARRAY,
        INT8_ARRAY,
        INT8_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY,
        INT8_ARRAY,
        TIMESTAMPTZ_ARRAY,
        TIMESTAMPTZ_ARRAY
    ]
);
sql!(DELETE_LANES, "delete_lanes.sql", [INT4_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY]);
sql!(
    INSERT_PLACES,
    "insert_places.sql",
    [
        UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT4_ARRAY,
        BOOL_ARRAY
    ]
);
sql!(DELETE_PLACES, "delete_places.sql", [UUID_ARRAY, INT4_ARRAY, INT4_ARRAY]);
sql!(NOTE_LANES, "note_lanes.sql", [UUID_ARRAY]);
sql!(NOTE_SUPERSEDED, "note_superseded.sql", [UUID_ARRAY]);
sql!(SUPERSEDE, "supersede.sql", [UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, TEXT]);
sql!(SUPERSEDED_RUNS, "superseded.sql", [UUID_ARRAY]);
sql!(RIVALS, "rivals.sql", [INT4_ARRAY, INT4_ARRAY, TEXT_ARRAY]);
sql!(BLOCKED, "blocked.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(FORGET_LANES, "forget_lanes.sql", [TIMESTAMPTZ, INT8]);
sql!(MAKE_LIMITS, "make_limits.sql", [TEXT_ARRAY]);
sql!(LIMITS_BY_NAME, "limits_by_name.sql", [TEXT_ARRAY]);
sql!(SET_LANE_KEYS, "set_lane_keys.sql", [UUID_ARRAY, TEXT_ARRAY]);
sql!(LOCK_TURNS, "lock_turns.sql", [INT4_ARRAY]);
sql!(
    ENQUEUE,
    "enqueue.sql",
    [
        UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT8_ARRAY,
        INT4_ARRAY, INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY
    ]
);
sql!(
    ENQUEUE_ALIKE,
    "enqueue_alike.sql",
    [UUID_ARRAY, INT4_ARRAY, INT4, INT4, INT4, INT4, INT8, INT4, INT4, INT8, TEXT]
);
sql!(
    PUT_BACK,
    "put_back.sql",
    [
        UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY,
        INT8_ARRAY, INT4_ARRAY, INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY
    ]
);
sql!(
    SCHEDULE,
    "schedule.sql",
    [
        UUID_ARRAY,
        INT4_ARRAY,
        TIMESTAMPTZ_ARRAY,
        INT8_ARRAY,
        INT4_ARRAY,
        INT4_ARRAY,
        INT8_ARRAY,
        TEXT_ARRAY,
        BOOL_ARRAY
    ]
);
sql!(DELETE_READY, "delete_ready.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(DELETE_LEASES, "delete_leases.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(TAKE_LEASES, "take_leases.sql", [UUID_ARRAY, INT4_ARRAY, INT8_ARRAY]);
sql!(DELETE_TIMERS, "delete_timers.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(DELETE_NOTES, "delete_notes.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(LIMIT_LEASES, "limit_leases.sql", [UUID_ARRAY, INT4_ARRAY, TIMESTAMPTZ_ARRAY]);
sql!(OVERDUE_LEASES, "overdue_leases.sql", [TIMESTAMPTZ, INT8]);
sql!(CHECKPOINT, "checkpoint.sql", [UUID_ARRAY, INT4_ARRAY, INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY]);
sql!(CHECKPOINTS, "checkpoints.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(
    RECORD_STEPS,
    "record_steps.sql",
    [
        UUID_ARRAY,
        INT4_ARRAY,
        INT8_ARRAY,
        INT8_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        INT4_ARRAY,
        INT4_ARRAY,
        TIMESTAMPTZ_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY
    ]
);
sql!(
    WRITE_STEPS,
    "write_steps.sql",
    [
        UUID_ARRAY,
        INT4_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        INT4_ARRAY,
        INT4_ARRAY,
        TIMESTAMPTZ_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY
    ]
);
sql!(STEPS, "steps.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(LIST_STEPS, "list_steps.sql", [UUID, INT4, INT4, INT8]);
sql!(STEPS_AT, "steps_at.sql", [UUID_ARRAY, INT4_ARRAY, INT4_ARRAY]);
sql!(LEAVE_STEPS, "leave_steps.sql", [UUID_ARRAY, INT4_ARRAY, INT4_ARRAY]);
sql!(FORGET_STEPS, "forget_steps.sql", [UUID_ARRAY, INT4_ARRAY, TEXT_ARRAY, TEXT_ARRAY]);
sql!(FORGET_CHILDREN, "forget_children.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(REOPEN_CHILD, "reopen_child.sql", [UUID]);
sql!(HOLD_LEASES, "hold_leases.sql", [UUID_ARRAY, INT4_ARRAY, INT8_ARRAY]);
sql!(
    INSERT_CHILDREN,
    "insert_children.sql",
    [UUID_ARRAY, UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY]
);
sql!(NOTE_ENDS, "note_ends.sql", [UUID_ARRAY]);
sql!(NOTE_CANCEL, "note_cancel.sql", [UUID_ARRAY]);
sql!(OPEN_CHILDREN, "open_children.sql", [UUID_ARRAY, INT8]);
sql!(END_CHILDREN, "end_children.sql", [UUID_ARRAY]);
sql!(SEE_ENDS, "see_ends.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(COUNT_OPEN, "count_open.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(CHILD_WAITERS, "child_waiters.sql", [UUID_ARRAY]);
sql!(COUNT_CHILDREN, "count_children.sql", [UUID, INT4, INT4]);
sql!(LIST_CHILDREN, "list_children.sql", [UUID, INT4, INT4, INT4, INT8]);
sql!(SEND_SIGNAL, "send_signal.sql", [UUID, UUID, TEXT, TEXT, TIMESTAMPTZ, INT8]);
sql!(LOCK_MAILBOXES, "lock_mailboxes.sql", [TEXT_ARRAY, TEXT_ARRAY]);
sql!(FORGET_KEY_SIGNAL, "forget_key_signal.sql", [TEXT, TEXT, UUID, TIMESTAMPTZ]);
sql!(
    SEND_KEY_SIGNAL,
    "send_key_signal.sql",
    [TEXT, TEXT, TEXT, UUID, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, INT8]
);
sql!(
    WAITING_KEY_SIGNALS,
    "waiting_key_signals.sql",
    [
        TEXT_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        INT8_ARRAY,
        BOOL_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        UUID_ARRAY,
        TIMESTAMPTZ
    ]
);
sql!(SIGNALLED_KEYS, "signalled_keys.sql", [TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TIMESTAMPTZ]);
sql!(TAKE_KEY_SIGNALS, "take_key_signals.sql", [TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY]);
sql!(EXPIRE_KEY_SIGNALS, "expire_key_signals.sql", [TIMESTAMPTZ, INT8]);
sql!(
    INSERT_KEY_WAITERS,
    "insert_key_waiters.sql",
    [UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY]
);
sql!(LOCK_KEY_WAITERS, "lock_key_waiters.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(DELETE_KEY_WAITERS, "delete_key_waiters.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(TOLD_WAITERS, "told_waiters.sql", [UUID_ARRAY]);
sql!(SIGNAL_WAITERS, "signal_waiters.sql", [UUID, TEXT]);
sql!(SIGNAL_NAMES, "signal_names.sql", [UUID_ARRAY]);
sql!(
    WAITING_SIGNALS,
    "waiting_signals.sql",
    [UUID_ARRAY, TEXT_ARRAY, INT8_ARRAY, BOOL_ARRAY, UUID_ARRAY, UUID_ARRAY]
);
sql!(TAKE_SIGNALS, "take_signals.sql", [UUID_ARRAY, INT8_ARRAY]);
sql!(DELETE_CHECKPOINTS, "delete_checkpoints.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(
    UPDATE_TASKS,
    "update_tasks.sql",
    [
        UUID_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY,
        INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY
    ]
);
sql!(
    INSERT_TASKS,
    "insert_tasks.sql",
    [
        UUID_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY,
        INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY
    ]
);
sql!(
    UPDATE_RUNS,
    "update_runs.sql",
    [UUID_ARRAY, TEXT_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, TIMESTAMPTZ_ARRAY]
);
sql!(UPDATE_RUNS_ALIKE, "update_runs_alike.sql", [UUID_ARRAY, TEXT, INT4, INT4, INT4, TIMESTAMPTZ]);
sql!(
    INSERT_TASKS_ALIKE,
    "insert_tasks_alike.sql",
    [UUID_ARRAY, INT4_ARRAY, TEXT, INT8, INT4, INT4, INT4, INT4, INT8, TEXT]
);
sql!(INSERT_HISTORY_ALIKE, "insert_history_alike.sql", [UUID_ARRAY, TIMESTAMPTZ, TEXT]);
sql!(INSERT_HISTORY, "insert_history.sql", [UUID_ARRAY, TIMESTAMPTZ, TEXT_ARRAY]);
sql!(CLAIM, "claim.sql", [INT4_ARRAY, INT8_ARRAY, INT8_ARRAY, UUID_ARRAY, INT8_ARRAY, TIMESTAMPTZ]);
sql!(CANDIDATES, "candidates.sql", [INT4_ARRAY, INT8_ARRAY, INT8]);
sql!(CANDIDATES_OF, "candidates_of.sql", [INT4_ARRAY, INT8_ARRAY, INT4, INT8]);
sql!(
    CLAIM_OF,
    "claim_of.sql",
    [UUID_ARRAY, INT4_ARRAY, INT4, INT4_ARRAY, UUID_ARRAY, INT8_ARRAY, TIMESTAMPTZ]
);
sql!(ENTER_WALL, "enter_wall.sql", [TEXT, TEXT]);
sql!(CHECK_WALL, "check_wall.sql", [TEXT, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY]);
sql!(PEEK, "peek.sql", [UUID, INT4_ARRAY, INT8_ARRAY, INT8]);
sql!(VIRTUAL_TIMES, "virtual_times.sql", [INT4_ARRAY]);
sql!(ROUTES, "routes.sql", []);
sql!(MAKE_LEVELS, "make_levels.sql", [TEXT_ARRAY, INT2_ARRAY]);
sql!(MAKE_ROUTES, "make_routes.sql", [TEXT_ARRAY, INT2_ARRAY, TEXT_ARRAY, INT4_ARRAY, INT2_ARRAY]);
sql!(RING, "ring.sql", [TIMESTAMPTZ]);
sql!(COUNT_ROUTES, "count_routes.sql", []);
sql!(MAKE_TENANTS, "make_tenants.sql", [TEXT_ARRAY]);
sql!(TENANTS_BY_NAME, "tenants_by_name.sql", [TEXT_ARRAY]);
sql!(TENANTS_BY_ID, "tenants_by_id.sql", [INT4_ARRAY]);
sql!(SET_WEIGHT, "set_weight.sql", [TEXT, INT2]);
sql!(LOCK_DEFINITIONS, "lock_definitions.sql", [TEXT_ARRAY]);
sql!(NEWEST_DEFINITIONS, "newest_definitions.sql", [TEXT_ARRAY, INT4_ARRAY]);
sql!(DEFINITIONS, "definitions.sql", [INT4_ARRAY]);
sql!(LIST_WORKFLOWS, "list_workflows.sql", [TEXT, TEXT, INT4, INT8]);
sql!(INSERT_DEFINITION, "insert_definition.sql", [TEXT, INT4, INT4, TEXT, INT4, TIMESTAMPTZ]);
sql!(
    INSERT_DEFINITION_TASKS,
    "insert_definition_tasks.sql",
    [INT4, INT4_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT4_ARRAY, INT4_ARRAY]
);
sql!(
    INSERT_RUNS,
    "insert_runs.sql",
    [
        UUID_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY,
        INT4_ARRAY,
        INT2_ARRAY,
        TIMESTAMPTZ,
        TEXT_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY
    ]
);
sql!(
    INSERT_NEW_RUNS,
    "insert_new_runs.sql",
    [
        UUID_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY,
        INT4_ARRAY,
        INT2_ARRAY,
        TIMESTAMPTZ,
        TEXT_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY
    ]
);
sql!(
    EXISTING_RUNS,
    "existing_runs.sql",
    [UUID_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TIMESTAMPTZ]
);
sql!(INPUTS, "inputs.sql", [UUID_ARRAY]);
sql!(ENDS, "ends.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(WHEREABOUTS, "whereabouts.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(FAILURES, "failures.sql", [UUID_ARRAY]);
sql!(
    JOIN_WORKER,
    "join_worker.sql",
    [
        UUID,
        TEXT,
        INT4,
        INT8,
        TIMESTAMPTZ,
        TIMESTAMPTZ,
        TEXT,
        INT8,
        TEXT,
        TEXT_ARRAY,
        TEXT_ARRAY,
        INT4_ARRAY,
        TEXT
    ]
);
sql!(BEGIN_DRAIN, "begin_drain.sql", [UUID]);
sql!(LIST_WORKERS, "list_workers.sql", [BOOL, TIMESTAMPTZ, UUID, INT8, TIMESTAMPTZ, INT8]);
sql!(LOCK_WORKER, "lock_worker.sql", [UUID]);
sql!(LOCK_WORKERS, "lock_workers.sql", [UUID_ARRAY]);
sql!(LOCK_FREE_WORKER, "lock_free_worker.sql", [UUID]);
sql!(PULSES, "pulses.sql", [UUID_ARRAY]);
sql!(DECLARED, "declared.sql", [UUID]);
sql!(WORKFLOW_NAMES, "workflow_names.sql", [INT8]);
sql!(BEAT, "beat.sql", [UUID, INT8, TIMESTAMPTZ, INT8, INT8]);
sql!(SET_WORKER_STATE, "set_worker_state.sql", [UUID, TEXT, TIMESTAMPTZ]);
sql!(BURY_WORKER, "bury_worker.sql", [UUID]);
sql!(WORKER_LEASES, "worker_leases.sql", [UUID, INT8]);
sql!(EXPIRED_WORKERS, "expired_workers.sql", [TIMESTAMPTZ]);
sql!(FORGOTTEN_WORKERS, "forgotten_workers.sql", [TIMESTAMPTZ]);
sql!(NEXT_LEASE_END, "next_lease_end.sql", [TIMESTAMPTZ]);
sql!(NOTE_PROGRESS, "note_progress.sql", [UUID_ARRAY, INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY]);
sql!(DUE_TIMERS, "due_timers.sql", [TIMESTAMPTZ, TIMESTAMPTZ, INT8]);
sql!(NEXT_DUE, "next_due.sql", [TIMESTAMPTZ]);
sql!(TAKE_STAGED, "take_staged.sql", [INT8, INT8]);
sql!(STAGED_END, "staged_end.sql", []);
sql!(DELETE_STAGED, "delete_staged.sql", [INT8_ARRAY]);
sql!(GET_RUN, "get_run.sql", [UUID]);
sql!(WHOSE_RUNS, "whose_runs.sql", [UUID_ARRAY]);
sql!(LIST_RUNS, "list_runs.sql", [TEXT, TEXT, TEXT, TEXT, TIMESTAMPTZ, UUID, INT8]);
sql!(
    LIST_RUNS_OF_TENANT,
    "list_runs_of_tenant.sql",
    [TEXT, TEXT, TEXT, TEXT, TIMESTAMPTZ, UUID, INT8, TEXT]
);
sql!(LIST_TASKS, "list_tasks.sql", [UUID, INT4, INT8]);
sql!(GET_TASK, "get_task.sql", [UUID, TEXT]);
sql!(HOLD_RUN, "hold_run.sql", [UUID]);
sql!(ARE_UNDER_WAY, "are_under_way.sql", [TEXT_ARRAY]);
sql!(LIST_EVENTS, "list_events.sql", [UUID, INT8, INT8]);
sql!(
    INSERT_DEAD_LETTERS,
    "insert_dead_letters.sql",
    [
        UUID_ARRAY,
        INT4_ARRAY,
        INT4_ARRAY,
        INT4_ARRAY,
        INT4_ARRAY,
        TIMESTAMPTZ,
        TEXT_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY
    ]
);
sql!(DELETE_DEAD_LETTERS, "delete_dead_letters.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(
    LIST_DEAD_LETTERS,
    "list_dead_letters.sql",
    [TEXT, TEXT, TEXT, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, TIMESTAMPTZ, UUID, INT8, INT8]
);
sql!(
    OLDEST_DEAD_LETTERS,
    "oldest_dead_letters.sql",
    [TEXT, TEXT, TEXT, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, TIMESTAMPTZ, UUID, INT8, INT8]
);
sql!(DEAD_LETTERS_OF_RUN, "dead_letters_of_run.sql", [UUID]);
sql!(STILL_DEAD, "still_dead.sql", [UUID_ARRAY, INT4_ARRAY]);
sql!(PRESENT_RUNS, "present_runs.sql", [UUID_ARRAY]);
sql!(BEGIN_ACTION, "begin_action.sql", [UUID, TEXT, TEXT, TEXT, TIMESTAMPTZ, TEXT, TEXT]);
sql!(
    CREATE_TOKEN,
    "create_token.sql",
    [TEXT, BYTEA, TEXT, TEXT_ARRAY, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, INT8]
);
sql!(FORGET_TOKENS, "forget_tokens.sql", [TEXT, TIMESTAMPTZ, INT8, INT8]);
sql!(COUNT_TOKENS, "count_tokens.sql", [TEXT]);
sql!(LOCK_TOKENS, "lock_tokens.sql", []);
sql!(FIND_TOKENS, "find_tokens.sql", [TEXT_ARRAY, TIMESTAMPTZ]);
sql!(LIST_TOKENS, "list_tokens.sql", [TEXT, TIMESTAMPTZ, TEXT, INT8]);
sql!(REVOKE_TOKEN, "revoke_token.sql", [TEXT, TIMESTAMPTZ]);
sql!(TOUCH_TOKENS, "touch_tokens.sql", [TEXT_ARRAY, TIMESTAMPTZ]);
sql!(END_ACTION, "end_action.sql", [UUID, TIMESTAMPTZ, UUID_ARRAY, TEXT]);
sql!(FIND_ACTION, "find_action.sql", [UUID]);
sql!(LOG_ACTION, "log_action.sql", [UUID, TEXT, TEXT, TEXT, TIMESTAMPTZ, UUID, TEXT, TEXT, TEXT]);
sql!(LIST_LOG, "list_log.sql", [TEXT, TEXT, INT8, INT8, TEXT]);
sql!(LIST_LOG_OF_RUN, "list_log_of_run.sql", [UUID, TEXT, TEXT, INT8, INT8, TEXT]);
sql!(LIST_RETENTION, "list_retention.sql", []);
sql!(SET_RETENTION, "set_retention.sql", [TEXT, TEXT, INT8, INT8, BOOL, BOOL, INT8]);
sql!(CLEAR_RETENTION, "clear_retention.sql", [TEXT, TEXT]);
sql!(LIST_QUOTAS, "list_quotas.sql", []);
sql!(SET_QUOTA, "set_quota.sql", [TEXT, INT4, INT4, INT4, INT4, INT4, INT4, INT8]);
sql!(CLEAR_QUOTA, "clear_quota.sql", [TEXT]);
sql!(GET_USAGE, "get_usage.sql", [TEXT, INT8]);
sql!(OLDEST_RUNS, "oldest_runs.sql", [TIMESTAMPTZ, UUID, TIMESTAMPTZ, INT8]);
sql!(LOCK_OLD_RUNS, "lock_old_runs.sql", [UUID_ARRAY]);
sql!(NEEDED_RUNS, "needed_runs.sql", [UUID_ARRAY]);
sql!(STATES_OF_RUNS, "states_of_runs.sql", [UUID_ARRAY]);
sql!(ARCHIVE_RUNS, "archive_runs.sql", [UUID_ARRAY, TIMESTAMPTZ]);
sql!(GET_ARCHIVED_RUN, "get_archived_run.sql", [UUID]);
sql!(KEEP_KEYS, "keep_keys.sql", [UUID_ARRAY, TIMESTAMPTZ_ARRAY]);
sql!(EXPIRE_KEPT_KEYS, "expire_kept_keys.sql", [TIMESTAMPTZ, INT8]);
sql!(DROP_KEPT, "drop_kept.sql", [UUID_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TIMESTAMPTZ]);
sql!(PRUNE_HANDLED, "prune_handled.sql", [INT4]);
sql!(PRUNE_RUNS, "prune_runs.sql", [UUID_ARRAY]);

sql!(
    PUT_SCHEDULE,
    "put_schedule.sql",
    [
        TEXT,
        TEXT,
        TEXT,
        INT4,
        INT2,
        TEXT,
        TEXT,
        TEXT,
        TEXT,
        TEXT,
        INT8,
        INT8,
        TIMESTAMPTZ,
        TIMESTAMPTZ,
        TIMESTAMPTZ,
        TIMESTAMPTZ,
        TIMESTAMPTZ,
        TIMESTAMPTZ,
        TIMESTAMPTZ,
        TEXT
    ]
);
sql!(LOCK_SCHEDULE, "lock_schedule.sql", [TEXT, TEXT]);
sql!(GET_SCHEDULE, "get_schedule.sql", [TEXT, TEXT]);
sql!(LIST_SCHEDULES, "list_schedules.sql", [TEXT, TEXT, TEXT, INT8]);
sql!(COUNT_SCHEDULES, "count_schedules.sql", [TEXT]);
sql!(LOCK_SCHEDULES, "lock_schedules.sql", []);
sql!(DELETE_SCHEDULE, "delete_schedule.sql", [TEXT, TEXT]);
sql!(LOCK_UNDECLARED, "lock_undeclared.sql", [TEXT, TEXT_ARRAY, TEXT_ARRAY, TEXT]);
sql!(DUE_SCHEDULES, "due_schedules.sql", [TIMESTAMPTZ, INT8, INT8_ARRAY]);
sql!(LOCK_DUE_SCHEDULES, "lock_due_schedules.sql", [TIMESTAMPTZ, INT8_ARRAY]);
sql!(OPEN_FIRES, "open_fires.sql", [INT8_ARRAY, INT8_ARRAY]);
sql!(
    ADVANCE_SCHEDULES,
    "advance_schedules.sql",
    [
        INT8_ARRAY,
        TEXT_ARRAY,
        TIMESTAMPTZ_ARRAY,
        TIMESTAMPTZ_ARRAY,
        TIMESTAMPTZ_ARRAY,
        TIMESTAMPTZ_ARRAY
    ]
);
sql!(
    INSERT_FIRES,
    "insert_fires.sql",
    [
        INT8_ARRAY,
        TIMESTAMPTZ_ARRAY,
        TIMESTAMPTZ,
        TEXT_ARRAY,
        TEXT_ARRAY,
        UUID_ARRAY,
        BOOL_ARRAY,
        TIMESTAMPTZ_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY
    ]
);
sql!(DEQUEUE_FIRES, "dequeue_fires.sql", [INT8_ARRAY, TIMESTAMPTZ_ARRAY]);
sql!(SKIP_QUEUED_FIRES, "skip_queued_fires.sql", [INT8_ARRAY]);
sql!(CLOSE_FIRES, "close_fires.sql", [INT8_ARRAY]);
sql!(FORGET_FIRES, "forget_fires.sql", [INT8_ARRAY, INT8]);
sql!(ARCHIVED_IDS, "archived_ids.sql", [UUID_ARRAY]);
sql!(STARTED_FIRES, "started_fires.sql", [INT8, TIMESTAMPTZ_ARRAY]);
sql!(LIST_FIRES, "list_fires.sql", [TEXT, TEXT, INT8]);
sql!(NEXT_SCHEDULE, "next_schedule.sql", [TIMESTAMPTZ, INT8_ARRAY]);
