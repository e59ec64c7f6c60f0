//! The hot statements are looked up by index, whatever the planner believes of the tables.
//!
//! The planner's idea of a queue table is often wrong: it was vacuumed while it was empty,
//! or never. What it then takes for cheap, a scan of the whole table, becomes the slower the
//! more there is, and a prepared statement keeps it. So each hot statement has one plan,
//! on every kind of database, with the settings that the store gives its connections.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio_postgres::Client;
use windlass::store::postgres::{PostgresOptions, PostgresStore};

use super::driver::{start, workflow};
use super::explain;
use super::fill::Fill;
use crate::database::TestDatabase;

/// What each hot statement reads, and how: the relation, the index and the columns that its
/// condition is on, or the physical place; and where it sorts.
const PLANS: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("lock_runs", &["runs by runs_pkey: id"]),
    ("lock_free_runs", &["runs by runs_pkey: id"]),
    ("count_ends", &["runs by runs_pkey: id"]),
    (
        "load_tasks",
        &[
            "leases by leases_pkey: idx run_id",
            "ready by ready_pkey: idx run_id",
            "task_rows by task_rows_pkey: idx run_id",
            "timers by timers_pkey: idx run_id",
        ],
    ),
    ("lock_ready", &["ready by ready_pkey: run_id"]),
    ("lock_turns", &[]),
    (
        "enqueue",
        &[
            "marks by marks_top: level_id",
            "ready by ready_turns: level_id tag tenant_id",
            "sort",
            "tenants by tenants_pkey: id",
        ],
    ),
    (
        "enqueue_alike",
        &[
            "marks by marks_top: level_id",
            "ready by ready_turns: level_id tag tenant_id",
            "tenants by tenants_pkey: id",
        ],
    ),
    ("put_back", &["routes by routes_pkey: id", "tenants by tenants_name_key: name"]),
    ("schedule", &[]),
    ("delete_ready", &["ready by place", "ready by ready_pkey: idx run_id"]),
    ("delete_leases", &["leases by leases_pkey: idx run_id", "leases by place"]),
    ("take_leases", &["leases by leases_pkey: idx run_id", "leases by place"]),
    ("delete_timers", &["timers by place", "timers by timers_pkey: idx run_id"]),
    ("delete_notes", &["notes by notes_pkey: idx run_id", "notes by place"]),
    ("limit_leases", &["leases by leases_pkey: idx run_id", "leases by place"]),
    ("overdue_leases", &["leases by leases_take_back: take_back_at"]),
    ("checkpoint", &["leases by leases_pkey: idx run_id", "leases by place", "sort"]),
    (
        "checkpoints",
        &["checkpoints by checkpoints_pkey: idx run_id", "task_rows by task_rows_pkey: idx run_id"],
    ),
    (
        "delete_checkpoints",
        &["checkpoints by checkpoints_pkey: idx run_id", "checkpoints by place"],
    ),
    ("update_tasks", &["task_rows by place", "task_rows by task_rows_pkey: idx run_id"]),
    ("insert_tasks", &[]),
    ("update_runs", &["runs by place", "runs by runs_pkey: id"]),
    ("insert_history", &[]),
    (
        "claim",
        &[
            "marks by marks_pkey: level_id tag worker_id",
            "marks by place",
            "ready by place",
            "ready by ready_order: route_id tag",
        ],
    ),
    ("candidates", &["ready by ready_order: route_id tag"]),
    (
        "peek",
        &[
            "routes by routes_workflow_version_level_id_bucket_key:",
            "pulses by pulses_pkey: worker_id",
            "ready by ready_order: route_id tag",
            "workers by workers_pkey: id",
        ],
    ),
    ("virtual_times", &["marks by marks_top: level_id"]),
    ("tenants_by_name", &["tenants by tenants_name_key: name"]),
    ("tenants_by_id", &["tenants by tenants_pkey: id"]),
    (
        "newest_definitions",
        &["definitions by definitions_workflow_version_revision_key: version workflow"],
    ),
    ("definitions", &["definitions by definitions_pkey: id"]),
    ("insert_runs", &[]),
    ("insert_new_runs", &[]),
    (
        "existing_runs",
        &[
            "kept_keys by kept_keys_pkey: key tenant workflow",
            "runs by runs_key: key tenant workflow",
            "runs by runs_pkey: id",
        ],
    ),
    ("inputs", &["runs by runs_pkey: id"]),
    ("ends", &["task_rows by task_rows_pkey: idx run_id"]),
    (
        "whereabouts",
        &[
            "definition_tasks by definition_tasks_pkey: definition_id idx",
            "runs by runs_pkey: id",
            "task_rows by task_rows_pkey: idx run_id",
        ],
    ),
    ("failures", &["task_rows by task_rows_pkey: run_id"]),
    ("lock_worker", &["workers by workers_pkey: id"]),
    (
        "pulses",
        &["leases by leases_worker: claim_seq worker_id", "pulses by pulses_pkey: worker_id"],
    ),
    ("beat", &["pulses by pulses_pkey: number worker_id"]),
    ("set_worker_state", &["workers by workers_pkey: id"]),
    (
        "bury_worker",
        &[
            "marks by marks_pkey: level_id tag worker_id",
            "marks by marks_pkey: worker_id",
            "marks by place",
            "pulses by pulses_pkey: worker_id",
            "sort",
        ],
    ),
    ("worker_leases", &["leases by leases_worker: claim_seq worker_id", "sort"]),
    (
        "expired_workers",
        &[
            "leases by leases_worker: claim_seq worker_id",
            "pulses by pulses_pkey: worker_id",
            "workers by workers_alive:",
        ],
    ),
    (
        "forgotten_workers",
        &[
            "leases by leases_worker: claim_seq worker_id",
            "pulses by pulses_pkey: worker_id",
            "workers by workers_alive:",
        ],
    ),
    (
        "next_lease_end",
        &[
            "leases by leases_take_back:",
            "leases by leases_worker: claim_seq worker_id",
            "pulses by pulses_pkey: worker_id",
            "workers by workers_alive:",
        ],
    ),
    (
        "outlook",
        &[
            "deadlines by deadlines_due:",
            "leases by leases_take_back:",
            "leases by leases_worker: claim_seq worker_id",
            "pulses by pulses_pkey: worker_id",
            "schedules by schedules_due:",
            "schedules by schedules_queued:",
            "staged by staged_pkey: seq",
            "timers by timers_due: due",
            "workers by workers_alive:",
        ],
    ),
    ("leader_clock", &["leaders by leaders_pkey: duty"]),
    (
        "due_schedules",
        &[
            "runs by runs_pkey: id",
            "schedule_fires by schedule_fires_open: schedule_id",
            "schedules by schedules_due: due_at",
            "schedules by schedules_queued:",
        ],
    ),
    ("lock_due_schedules", &["schedules by schedules_pkey: id", "sort"]),
    ("next_schedule", &["schedules by schedules_due:", "schedules by schedules_queued:"]),
    (
        "open_fires",
        &[
            "runs by runs_pkey: id",
            "schedule_fires by schedule_fires_newest: schedule_id",
            "schedule_fires by schedule_fires_open: schedule_id",
            "sort",
        ],
    ),
    ("note_progress", &["leases by leases_pkey: idx run_id", "sort"]),
    ("due_timers", &["timers by timers_due: due"]),
    ("next_due", &["deadlines by deadlines_due:", "timers by timers_due: due"]),
    ("due_deadlines", &["deadlines by deadlines_due: due"]),
    ("passed_deadlines", &["deadlines by deadlines_pkey: idx run_id"]),
    ("take_staged", &["staged by staged_pkey: seq"]),
    ("lock_mailboxes", &["sort"]),
    ("forget_key_signal", &["key_signals by key_signals_pkey: id key tenant"]),
    (
        "send_key_signal",
        &[
            "key_signals by key_signals_pkey: id key tenant",
            "key_signals by key_signals_waiting: key name tenant",
            "key_waiters by key_waiters_of: key name tenant",
            "key_waiters by place",
            "sort",
        ],
    ),
    (
        "waiting_key_signals",
        &[
            "key_signals by key_signals_pkey: id key tenant",
            "key_signals by key_signals_waiting: key name tenant",
            "sort",
        ],
    ),
    ("signalled_keys", &["key_signals by key_signals_waiting: key name tenant"]),
    (
        "take_key_signals",
        &["key_signals by key_signals_waiting: key name seq tenant", "key_signals by place"],
    ),
    ("insert_key_waiters", &["sort"]),
    ("lock_key_waiters", &["key_waiters by key_waiters_pkey: idx run_id"]),
    (
        "delete_key_waiters",
        &["key_waiters by key_waiters_pkey: idx run_id", "key_waiters by place"],
    ),
    ("told_waiters", &["key_waiters by key_waiters_pkey: run_id"]),
    (
        "expire_key_signals",
        &["key_signals by key_signals_expiry: expires_at", "key_signals by place"],
    ),
    ("delete_staged", &["staged by staged_pkey: seq"]),
    ("get_run", &["runs by runs_pkey: id"]),
    ("list_runs", &["runs by runs_by_age: created_at id uuid_send"]),
    ("why_run", &["runs by runs_pkey: id"]),
    (
        "why_active",
        &[
            "leases by leases_pkey: run_id",
            "ready by ready_pkey: run_id",
            "timers by timers_pkey: run_id",
        ],
    ),
    ("why_failed", &["task_rows by task_rows_pkey: run_id"]),
    (
        "why_tasks",
        &[
            "leases by leases_pkey: idx run_id",
            "levels by levels_pkey: id",
            "notes by notes_pkey: idx run_id",
            "pulses by pulses_pkey: worker_id",
            "ready by ready_pkey: idx run_id",
            "routes by routes_pkey: id",
            "task_rows by task_rows_pkey: idx run_id",
            "timers by timers_pkey: idx run_id",
            "workers by workers_pkey: id",
        ],
    ),
    ("why_parents", &["task_rows by task_rows_pkey: idx run_id"]),
    (
        "why_before",
        &[
            "levels by levels_queue_priority_key: priority queue",
            "ready by ready_order: route_id tag",
            "ready by ready_turns: level_id tag tenant_id",
            "routes by routes_workflow_version_level_id_bucket_key: level_id",
        ],
    ),
    (
        "why_lane",
        &[
            "definition_tasks by definition_tasks_pkey: definition_id idx",
            "lane_places by lane_places_order: key limit_id seq tenant_id",
            "lane_places by lane_places_pkey: idx run_id",
            "lanes by lanes_pkey: key limit_id tenant_id",
            "limits by limits_pkey: id",
            "runs by runs_pkey: id",
            "sort",
        ],
    ),
    (
        "why_calls",
        &[
            "children by children_open: call idx run_id",
            "key_waiters by key_waiters_pkey: call idx run_id",
            "sort",
            "steps by steps_open: idx run_id",
        ],
    ),
    ("why_since", &["history by history_pkey: run_id"]),
    (
        "why_cancelled",
        &["history by history_pkey: id run_id", "history by history_pkey: run_id", "sort"],
    ),
    (
        "why_workers",
        &[
            "leases by leases_worker: claim_seq worker_id",
            "pulses by pulses_pkey: worker_id",
            "sort",
            "workers by workers_alive:",
        ],
    ),
    ("insert_dead_letters", &[]),
    (
        "delete_dead_letters",
        &["dead_letters by dead_letters_pkey: idx run_id", "dead_letters by place"],
    ),
    ("list_dead_letters", &["dead_letters by dead_letters_by_age: failed_at uuid_send"]),
    ("oldest_dead_letters", &["dead_letters by dead_letters_by_age: failed_at uuid_send"]),
    ("dead_letters_of_run", &["dead_letters by dead_letters_pkey: run_id"]),
    ("still_dead", &["dead_letters by dead_letters_pkey: idx run_id"]),
    ("present_runs", &["runs by runs_pkey: id"]),
    ("oldest_runs", &["runs by runs_by_age: created_at id uuid_send"]),
    ("lock_old_runs", &["runs by runs_pkey: id"]),
    ("states_of_runs", &["runs by runs_pkey: id"]),
    (
        "drop_kept",
        &[
            "kept_keys by kept_keys_pkey: key tenant workflow",
            "runs by place",
            "runs by runs_pkey: id",
        ],
    ),
    (
        "prune_runs",
        &[
            "checkpoints by checkpoints_pkey: run_id",
            "children by children_of: run_id",
            "dead_letters by dead_letters_pkey: run_id",
            "deadlines by deadlines_pkey: run_id",
            "history by history_pkey: run_id",
            "notes by notes_pkey: run_id",
            "runs by runs_pkey: id",
            "signals by signals_pkey: run_id",
            "steps by steps_pkey: run_id",
            "task_rows by task_rows_pkey: run_id",
        ],
    ),
    ("roll_up", &["queue_changes by place", "queue_changes by queue_changes_pkey: seq", "sort"]),
    ("expire_kept_keys", &["kept_keys by kept_keys_expiry: expires_at", "kept_keys by place"]),
    ("find_action", &["operator_log by operator_log_pkey: id"]),
    ("end_action", &["operator_log by operator_log_pkey: id"]),
    ("list_log", &["operator_log by operator_log_by_number: number"]),
    (
        "list_events",
        &[
            "definition_tasks by definition_tasks_pkey: definition_id idx",
            "history by history_pkey: id run_id",
            "ready by ready_pkey: run_id",
            "runs by runs_pkey: id",
            "sort",
        ],
    ),
];

/// A statement of the store.
pub(super) struct Statement {
    name: String,
    types: Vec<String>,
    text: String,
}

impl Statement {
    /// The statements of the store, with the types of their parameters.
    fn all() -> Vec<Statement> {
        let source = explain::source("statements.rs");
        let declared = source.split("sql!(").skip(1).map(|rest| {
            let (declared, _) = rest.split_once(");").expect("each declaration ends");
            let (start, types) = declared.split_once('[').expect("each has types");
            let file = start.split('"').nth(1).expect("each has a file");
            let name = file.trim_end_matches(".sql").to_owned();
            let types = types.trim_end().trim_end_matches(']').split(',').map(str::trim);
            let types = types.filter(|one| !one.is_empty()).map(|one| {
                let one = one.to_lowercase();
                one.strip_suffix("_array").map_or(one.clone(), |one| format!("{one}[]"))
            });
            Statement {
                text: explain::source(&format!("sql/{file}")),
                types: types.collect(),
                name,
            }
        });
        declared.collect()
    }

    fn prepare(&self) -> String {
        let Statement { name, types, text } = self;
        let types = types.join(", ");
        let types = if types.is_empty() { types } else { format!("({types})") };
        format!("prepare {name}{types} as {text}")
    }

    /// A call of the prepared statement, with batches of 500.
    fn execute(&self) -> String {
        let value = |one: &str, n: usize| match one {
            "uuid" => format!("01900000-0000-7000-8000-{:012x}", 7 * n),
            "text" => "null".to_owned(),
            "timestamptz" => "2026-01-01".to_owned(),
            _ => "1".to_owned(),
        };
        let parameter = |one: &String| match one.strip_suffix("[]") {
            None => format!("'{}'", value(one, 1)),
            Some(one) => {
                let values: Vec<String> = (0..500).map(|n| value(one, n)).collect();
                format!("'{{{}}}'", values.join(","))
            }
        };
        let parameters: Vec<String> = self.types.iter().map(parameter).collect();
        let parameters = parameters.join(", ");
        let parameters = if parameters.is_empty() { parameters } else { format!("({parameters})") };
        format!("execute {}{parameters}", self.name)
    }
}

/// Which columns an index condition is on: `((route_id = k.route_id) AND (tag >= $1))`, or
/// `(ROW(a, b) < ROW($1, $2))`.
fn columns(condition: &str) -> String {
    let is_name =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let sides = condition.split(" AND ").filter_map(|clause| clause.split(['=', '<', '>']).next());
    let words = sides.flat_map(|side| side.trim_matches(['(', ')', ' ']).split(['(', ',', ' ']));
    let columns: BTreeSet<&str> = words.filter(is_name).collect();
    columns.into_iter().collect::<Vec<_>>().join(" ")
}

/// The lines of [`PLANS`] for a plan: its joins, sorts, and reads of tables.
fn lines(node: &Value, lines: &mut BTreeSet<String>) {
    let text = |key: &str| node[key].as_str().unwrap_or_default();
    let relation = text("Relation Name");
    match text("Node Type") {
        "Hash Join" | "Merge Join" | "Sort" | "Incremental Sort" | "Materialize" => {
            lines.insert(text("Node Type").to_lowercase());
        }
        "Index Scan" | "Index Only Scan" => {
            let (index, columns) = (text("Index Name"), columns(text("Index Cond")));
            lines.insert(format!("{relation} by {index}: {columns}").trim_end().to_owned());
        }
        "Tid Scan" => {
            lines.insert(format!("{relation} by place"));
        }
        "ModifyTable" | "LockRows" => {}
        other if !relation.is_empty() => {
            lines.insert(format!("{relation} by {}", other.to_lowercase()));
        }
        _ => {}
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        self::lines(child, lines);
    }
}

/// Makes a session like one of the store's, with every statement prepared.
pub(super) async fn prepare_all(client: &Client) -> Vec<Statement> {
    for (name, value) in explain::planner_settings() {
        run(client, &format!("set {name} = {value}")).await;
    }
    let statements = Statement::all();
    for statement in &statements {
        run(client, &statement.prepare()).await;
    }
    statements
}

/// Compares the plan of every hot statement, generic and custom, with what it must be.
async fn check_plans(client: &Client) {
    let statements = prepare_all(client).await;
    let mut wrong = Vec::new();
    for mode in ["force_generic_plan", "force_custom_plan"] {
        let set = format!("set plan_cache_mode = {mode}");
        client.batch_execute(&set).await.expect("it can be set");
        for (name, expected) in PLANS {
            let statement = statements.iter().find(|one| one.name == *name);
            let statement = statement.unwrap_or_else(|| panic!("there is no statement {name:?}"));
            let sql = format!("explain (format json) {}", statement.execute());
            let plan = explain::explain(client, &sql).await.expect("it can be explained");
            let mut found = BTreeSet::new();
            lines(&plan["Plan"], &mut found);
            let expected: BTreeSet<String> = expected.iter().map(|&line| line.into()).collect();
            if found != expected {
                wrong.push(format!("{name} ({mode}): {found:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A database in which one run was started, with a session on it.
async fn seeded() -> (TestDatabase, Client) {
    let database = TestDatabase::new().await;
    let store = PostgresStore::connect(PostgresOptions::new(database.url()))
        .await
        .expect("the database is there");
    start(&store, &workflow("one", &["a"])).await;
    let client = database.client().await;
    (database, client)
}

async fn full() -> (TestDatabase, Client) {
    let (database, client) = seeded().await;
    let fill = Fill { finished: 20_000, ready: 5_000, tenants: 200 };
    fill.write(&client).await.expect("it can be filled");
    let narrow = "
        insert into windlass.workers (id, name, slots, lease, joined_at)
        select gen_random_uuid(), 'w', 10, '10 s', now() from generate_series(1, 20);
        insert into windlass.pulses (worker_id, number, lease_until, last_claim, oldest_claim)
        select w.id, 1, now(), 0, 0 from windlass.workers w on conflict do nothing;
        with taken as (
            delete from windlass.ready where seq % 3 <> 0 returning *
        ), leased as (
            insert into windlass.leases (run_id, idx, worker_id, claim_seq, route_id, tag, seq,
                fence, attempt, max_attempts)
            select t.run_id, t.idx, w.id, t.seq, t.route_id, t.tag, t.seq, 1, 1, t.max_attempts
            from taken t, (select id from windlass.workers order by id limit 1) w
            where t.seq % 3 = 1
        )
        insert into windlass.timers (run_id, idx, due, seq, fence, attempt, max_attempts)
        select t.run_id, t.idx, now() + t.seq * interval '1 s', t.seq, 0, 0, t.max_attempts
        from taken t where t.seq % 3 = 2;
        insert into windlass.marks (level_id, worker_id, tag)
        select l.id, w.id, row_number() over () from windlass.levels l, windlass.workers w;
        insert into windlass.key_signals (tenant, key, name, id, is_taken, at, expires_at, value)
        select 'filled ' || n % 9, 'key ' || n % 99, 'name ' || n % 3, gen_random_uuid(),
            n % 2 = 0, now(), now() + n * interval '1 s', '1'
        from generate_series(1, 5000) n;
        insert into windlass.dead_letters (run_id, idx, round, version, attempts, failed_at, tenant,
            workflow, task, queue, reason, failure)
        select gen_random_uuid(), n % 3, 1, 1, 5, now() + n * interval '1 s', 'filled ' || n % 9,
            'one', 'a', 'default', 'error', '{}'
        from generate_series(1, 5000) n;
        insert into windlass.operator_log (id, at, operator, action, runs)
        select gen_random_uuid(), now(), 'anna', 'redrive', array[gen_random_uuid()]
        from generate_series(1, 5000) n;
        insert into windlass.schedules (tenant, name, workflow, version, priority, state, cadence,
            missed, overlap, jitter_micros, grace_micros, created_at, next_at, due_at, queued_at,
            input)
        select 'filled ' || n % 9, 'schedule ' || n, 'one', 1, 0, 'active', '{}', 'skip', 'queue', 0,
            1000000, now(), now() + n * interval '1 s', now() + n * interval '1 s',
            case n % 99 when 0 then now() end, '1'
        from generate_series(1, 5000) n;
        insert into windlass.schedule_fires (schedule_id, nominal_at, at, by, result, run_id, is_open)
        select s.id, now() - n * interval '1 s', now(), 'time', 'started', gen_random_uuid(), n = 1
        from windlass.schedules s, generate_series(1, 10) n;
        insert into windlass.key_waiters (run_id, idx, call, tenant, key, name)
        select r.id, 0, 1, r.tenant, 'key ' || n % 999, 'name ' || n % 3
        from (select r.*, row_number() over () as n from windlass.runs r) r
        where r.state = 'running';";
    client.batch_execute(narrow).await.expect("it can be filled");
    (database, client)
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.expect("it can be run");
}

/// Lets the tasks that are in the queues pass, as many times as said.
const PASS: &str = "
    create temp table passing as select r.* from windlass.ready r;
    delete from windlass.ready;
    insert into windlass.ready select p.* from passing p;
    delete from windlass.leases;
    delete from windlass.timers;
    drop table passing;";

/// Whatever the planner believes of the tenants: in its statistics there is one, the large one.
#[tokio::test]
async fn a_list_of_a_tenant_reads_no_runs_of_others() {
    let (_database, client) = seeded().await;
    let insert = |tenant: &str, count: u32| {
        format!(
            "insert into windlass.runs (id, definition_id, workflow, version, tenant, state,
                open_tasks, created_at, ended_at, metadata, input)
             select gen_random_uuid(), 1, 'one', 1, '{tenant}', 'succeeded', 0,
                now() + n * interval '1 ms', now(), '{{\"k\": \"v\"}}', '1'
             from generate_series(1, {count}) n"
        )
    };
    prepare_all(&client).await;
    let explained = async |filter: &str, tenant: &str| {
        let sql = format!(
            "explain (analyze, buffers, format json)
             execute list_runs_of_tenant({filter}, null, null, 101, '{tenant}')"
        );
        explain::explain(&client, &sql).await.expect("it can be explained")
    };
    let any = "null, null, null, null";
    let fills = ["delete from windlass.runs", "vacuum analyze windlass.runs"];
    let large = insert("large", 100_000);
    for fill in fills.into_iter().chain([large.as_str(), "vacuum analyze windlass.runs"]) {
        run(&client, fill).await;
        let plan = explained(any, "small").await.to_string();
        assert!(plan.contains("runs_by_tenant") && !plan.contains("Sort"), "{fill}: {plan}");
    }
    run(&client, &insert("small", 10)).await;
    let filters = [
        any,
        "'one', null, null, null",
        "'another', null, null, null",
        "null, 'failed', null, null",
        "null, null, 'k', 'v'",
        "null, null, 'k', 'w'",
    ];
    for filter in filters {
        for tenant in ["small", "unheard-of"] {
            let plan = explained(filter, tenant).await;
            let buffers = explain::buffers(&plan);
            assert!(buffers < 40, "{tenant} with {filter} touches {buffers} buffers: {plan:#}");
        }
    }
}

#[tokio::test]
async fn plans_hold_in_a_new_database() {
    let (_database, client) = seeded().await;
    check_plans(&client).await;
}

#[tokio::test]
async fn plans_hold_on_tables_that_were_vacuumed_while_empty() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    run(&client, "vacuum analyze").await;
    check_plans(&client).await;
}

#[tokio::test]
async fn plans_hold_on_small_tables() {
    let (_database, client) = seeded().await;
    run(&client, "vacuum analyze").await;
    check_plans(&client).await;
}

#[tokio::test]
async fn plans_hold_on_full_tables_that_were_never_analyzed() {
    let (_database, client) = full().await;
    check_plans(&client).await;
}

#[tokio::test]
async fn plans_hold_on_full_tables() {
    let (_database, client) = full().await;
    run(&client, "vacuum analyze").await;
    check_plans(&client).await;
}

#[tokio::test]
async fn plans_hold_after_the_queues_ran_empty() {
    let (_database, client) = full().await;
    let empty =
        "delete from windlass.ready; delete from windlass.leases; delete from windlass.timers";
    run(&client, empty).await;
    run(&client, "vacuum analyze").await;
    check_plans(&client).await;
}

#[tokio::test]
async fn plans_hold_while_an_old_snapshot_keeps_dead_rows() {
    let (database, client) = full().await;
    let old = database.client().await;
    run(&old, "begin isolation level repeatable read; select from windlass.ready limit 1").await;
    for _ in 0..3 {
        run(&client, PASS).await;
    }
    run(&client, "vacuum analyze").await;
    check_plans(&client).await;
    run(&old, "commit").await;
}
