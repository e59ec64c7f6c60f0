//! Every statement of the store: the text is in a file of its name, the types of its
//! parameters are here.

use super::pool::{Sql, sql};
use tokio_postgres::types::Type;

sql!(CLOCK, "clock", []);
sql!(LOCK_RUNS, "lock_runs", [UUID_ARRAY]);
sql!(LOCK_FREE_RUNS, "lock_free_runs", [UUID_ARRAY]);
sql!(LOAD_TASKS, "load_tasks", [UUID_ARRAY, INT4_ARRAY]);
sql!(LOAD_RUN_TASKS, "load_run_tasks", [UUID]);
sql!(LOCK_READY, "lock_ready", [UUID]);
sql!(LOCK_TURNS, "lock_turns", [INT4_ARRAY]);
sql!(
    ENQUEUE,
    "enqueue",
    [
        UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT8_ARRAY,
        INT4_ARRAY, INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY
    ]
);
sql!(
    PUT_BACK,
    "put_back",
    [
        UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT8_ARRAY,
        INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY
    ]
);
sql!(
    SCHEDULE,
    "schedule",
    [
        UUID_ARRAY,
        INT4_ARRAY,
        TIMESTAMPTZ_ARRAY,
        INT8_ARRAY,
        INT4_ARRAY,
        INT4_ARRAY,
        INT8_ARRAY,
        TEXT_ARRAY
    ]
);
sql!(DELETE_READY, "delete_ready", [UUID_ARRAY, INT4_ARRAY]);
sql!(DELETE_LEASES, "delete_leases", [UUID_ARRAY, INT4_ARRAY]);
sql!(DELETE_TIMERS, "delete_timers", [UUID_ARRAY, INT4_ARRAY]);
sql!(DELETE_OUTPUTS, "delete_outputs", [UUID_ARRAY, INT4_ARRAY]);
sql!(DELETE_NOTES, "delete_notes", [UUID_ARRAY, INT4_ARRAY]);
sql!(
    UPDATE_TASKS,
    "update_tasks",
    [
        UUID_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY,
        INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY, TEXT_ARRAY
    ]
);
sql!(
    UPDATE_RUNS,
    "update_runs",
    [UUID_ARRAY, TEXT_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, TIMESTAMPTZ_ARRAY]
);
sql!(INSERT_OUTPUTS, "insert_outputs", [UUID_ARRAY, INT4_ARRAY, TEXT_ARRAY]);
sql!(
    INSERT_EVENTS,
    "insert_events",
    [
        UUID_ARRAY,
        TIMESTAMPTZ,
        TEXT_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        INT8_ARRAY,
        INT4_ARRAY,
        TEXT_ARRAY
    ]
);
sql!(CLAIM, "claim", [INT4_ARRAY, INT8_ARRAY, INT8_ARRAY, UUID, INT8, TIMESTAMPTZ]);
sql!(CANDIDATES, "candidates", [INT4_ARRAY, INT8_ARRAY, INT8]);
sql!(LANES, "lanes", [INT4]);
sql!(MAKE_LEVELS, "make_levels", [TEXT_ARRAY, INT2_ARRAY]);
sql!(MAKE_LANES, "make_lanes", [TEXT_ARRAY, INT2_ARRAY, TEXT_ARRAY, INT4_ARRAY]);
sql!(MAKE_TENANTS, "make_tenants", [TEXT_ARRAY]);
sql!(TENANTS_BY_NAME, "tenants_by_name", [TEXT_ARRAY]);
sql!(TENANTS_BY_ID, "tenants_by_id", [INT4_ARRAY]);
sql!(SET_WEIGHT, "set_weight", [TEXT, INT2]);
sql!(LOCK_DEFINITIONS, "lock_definitions", [TEXT_ARRAY]);
sql!(NEWEST_DEFINITIONS, "newest_definitions", [TEXT_ARRAY, INT4_ARRAY]);
sql!(DEFINITIONS, "definitions", [INT4_ARRAY]);
sql!(INSERT_DEFINITION, "insert_definition", [TEXT, INT4, INT4, TEXT, INT4, TIMESTAMPTZ]);
sql!(
    INSERT_DEFINITION_TASKS,
    "insert_definition_tasks",
    [INT4, INT4_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT4_ARRAY, INT4_ARRAY]
);
sql!(
    INSERT_RUNS,
    "insert_runs",
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
        TEXT_ARRAY
    ]
);
sql!(INSERT_INPUTS, "insert_inputs", [UUID_ARRAY, TEXT_ARRAY]);
sql!(INSERT_TASKS, "insert_tasks", [UUID_ARRAY, INT4_ARRAY]);
sql!(EXISTING_RUNS, "existing_runs", [UUID_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY]);
sql!(INPUTS, "inputs", [UUID_ARRAY]);
sql!(ENDS, "ends", [UUID_ARRAY, INT4_ARRAY]);
sql!(FAILURES, "failures", [UUID_ARRAY]);
sql!(JOIN_WORKER, "join_worker", [UUID, TEXT, INT4, INT8, TIMESTAMPTZ, TIMESTAMPTZ]);
sql!(LOCK_WORKER, "lock_worker", [UUID]);
sql!(HOLDS_TASKS, "holds_tasks", [UUID]);
sql!(UPDATE_WORKER, "update_worker", [UUID, TIMESTAMPTZ, INT8, TEXT]);
sql!(BURY_WORKER, "bury_worker", [UUID]);
sql!(WORKER_LEASES, "worker_leases", [UUID]);
sql!(EXPIRED_WORKERS, "expired_workers", [TIMESTAMPTZ]);
sql!(FORGOTTEN_WORKERS, "forgotten_workers", [TIMESTAMPTZ]);
sql!(NEXT_LEASE_END, "next_lease_end", [TIMESTAMPTZ]);
sql!(NOTE_PROGRESS, "note_progress", [UUID_ARRAY, INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY]);
sql!(DUE_TIMERS, "due_timers", [TIMESTAMPTZ, INT8]);
sql!(NEXT_DUE, "next_due", []);
sql!(TAKE_STAGED, "take_staged", [INT8]);
sql!(DELETE_STAGED, "delete_staged", [INT8_ARRAY]);
sql!(GET_RUN, "get_run", [UUID]);
sql!(LIST_RUNS, "list_runs", [TEXT, TEXT, TEXT, TEXT, TEXT, TIMESTAMPTZ, UUID, INT8]);
sql!(LIST_TASKS, "list_tasks", [UUID, INT4, INT8]);
sql!(GET_TASK, "get_task", [UUID, TEXT]);
sql!(LIST_EVENTS, "list_events", [UUID, INT8, INT8]);
