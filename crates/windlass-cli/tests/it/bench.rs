//! `windlass bench`, with little to do: that it measures and cleans up, not how fast it is.

use rustix::process::Signal;
use serde_json::Value;

use crate::place::{Place, Running, wait_until};
use crate::{assert_line, text, windlass};

/// The figures of a benchmark on a private server in a directory of its own.
fn bench(arguments: &[&str]) -> Value {
    let (figures, is_success) = judged(arguments);
    assert!(is_success, "{figures}");
    figures
}

/// The figures of a benchmark and whether it succeeded, for those that fail if a bound is missed.
fn judged(arguments: &[&str]) -> (Value, bool) {
    let place = Place::new();
    let data = place.data();
    let all = [&["bench"], arguments, &["--json", "--data", &data]].concat();
    let out = windlass(&all);
    assert_eq!(place.list(), [""; 0], "nothing is left");
    let figures = serde_json::from_slice(&out.stdout);
    (figures.unwrap_or_else(|_| panic!("{}", text(&out.stderr))), out.status.success())
}

#[test]
fn hostile_clients_attack_a_server_and_their_bounds_are_judged() {
    let few = ["--runs", "20", "--large-runs", "1", "--rate", "20", "--seconds", "1"];
    let attacks = ["--rounds", "1", "--attack", "bodies", "--attack", "claims"];
    let (figures, is_success) = judged(&[["hostile"].as_slice(), &few, &attacks].concat());
    let keys = ["bodies_refused", "bodies_mebibytes", "claims_answered", "claims_p99_ratio"];
    assert_positive(&figures, &keys);
    let is_kept = |(key, max): (&String, &Value)| {
        let figure = &figures[key.strip_suffix("_max")?];
        Some(figure.as_f64()? <= max.as_f64()?)
    };
    let kept: Vec<bool> = figures.as_object().unwrap().iter().filter_map(is_kept).collect();
    assert_eq!(kept.len(), 6, "{figures}");
    assert_eq!(is_success, kept.iter().all(|kept| *kept), "{figures}");
}

#[track_caller]
fn assert_positive(figures: &Value, keys: &[&str]) {
    assert_eq!(figures["audit_clean"], true, "{figures}");
    for key in keys {
        assert!(figures[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {figures}");
    }
}

#[test]
fn tasks_are_measured_beside_the_raw_sql_of_the_same_rows() {
    let figures = bench(&["throughput", "--tasks", "300"]);
    let keys = ["tasks_per_second", "raw_tasks_per_second", "ratio", "transactions_per_task"];
    assert_positive(&figures, &keys);
    assert_positive(&figures, &["wal_bytes_per_task"]);
}

#[test]
fn workflows_starts_and_latencies_are_measured() {
    let figures = bench(&["workflows", "--chains", "50", "--fan-outs", "2"]);
    assert_positive(&figures, &["workflows_per_second", "fan_outs_per_second"]);
    let figures = bench(&["start", "--runs", "400"]);
    assert_positive(&figures, &["starts_per_second", "concurrent_starts_per_second"]);
    let figures = bench(&["latency", "--runs", "10"]);
    let keys = ["start_p50_ms", "start_p99_ms", "hop_p50_ms", "hop_p99_ms", "commit_p50_ms"];
    assert_positive(&figures, &keys);
}

#[test]
fn functions_are_measured_in_bulk_beside_raw_sql_and_one_by_one() {
    let few = ["--functions", "100", "--runs", "5", "--slots", "50"];
    let no_more = ["--sleepers", "0", "--replays", "0"];
    let figures = bench(&[["functions"].as_slice(), &few, &no_more].concat());
    let keys = ["functions_per_second", "steps_per_second", "raw_functions_per_second", "ratio"];
    assert_positive(&figures, &keys);
    assert_positive(&figures, &["function_p50_ms", "function_p99_ms"]);
    let each = figures["steps_per_second"].as_f64().zip(figures["functions_per_second"].as_f64());
    assert!(each.is_some_and(|(steps, functions)| (steps / functions - 3.0).abs() < 1e-6));
}

#[test]
fn sleepers_are_never_early_and_a_replay_comes_to_the_next_step() {
    let few = ["--functions", "1", "--runs", "1", "--sleepers", "60", "--replays", "1"];
    let figures = bench(&[["functions"].as_slice(), &few].concat());
    assert_eq!(figures["sleepers"], 60.0);
    let ready = ["sleeper_ready_p50_ms", "sleeper_ready_p99_ms", "sleeper_ready_max_ms"];
    let late = ["sleeper_late_p50_ms", "sleeper_late_p99_ms", "sleeper_late_max_ms"];
    assert_positive(&figures, &ready);
    assert_positive(&figures, &late);
    // None goes on before it is ready.
    for (ready, late) in ready.iter().zip(late) {
        assert!(figures[ready].as_f64() <= figures[late].as_f64(), "{figures}");
    }
    assert_positive(&figures, &["sleepers_ended_ms", "sleepers_awake_per_second"]);
    assert_positive(&figures, &["replay_1000_ms", "replay_1000_max_ms"]);
}

#[test]
fn streams_are_measured_beside_tasks_without_limits() {
    let sizes = ["--tasks", "200", "--keys", "20", "--hot", "20", "--waiting", "50"];
    let figures = bench(&[&["limits", "--slots", "50"], &sizes[..]].concat());
    let keys = ["tasks_per_second", "stream_tasks_per_second", "kept", "hot_tasks_per_second"];
    assert_positive(&figures, &keys);
    assert_positive(&figures, &["beside_tasks_per_second", "beside_kept"]);
}

#[test]
fn an_idle_worker_is_watched() {
    let figures = bench(&["idle", "--seconds", "3"]);
    // In so short a time it may do nothing at all.
    assert_eq!(figures["audit_clean"], true, "{figures}");
    for key in ["statements_per_second", "transactions_per_second", "wal_bytes_per_second"] {
        assert!(figures[key].is_number(), "{key} in {figures}");
    }
}

#[test]
fn the_worst_gap_is_within_its_bound() {
    let figures = bench(&["fairness", "--tenants", "5", "--tasks", "40", "--slots", "4"]);
    assert_positive(&figures, &["worst_gap", "newcomer_gap"]);
    // Five tenants, claims of four, three workers.
    assert_eq!(figures["gap_bound"], 23.0);
    // A newcomer may be passed while its start is committed, and then waits for a time.
    assert!(figures["worst_gap"].as_f64() <= figures["gap_bound"].as_f64(), "{figures}");
    assert!(figures["share_error_percent"].as_f64().is_some_and(|error| error < 10.0));
}

/// What takes too long for every day; `cargo xtask test` runs it by name.
mod long {
    use super::*;

    #[test]
    #[ignore = "long"]
    fn a_long_transaction_more_processes_and_a_larger_backlog_are_measured() {
        let figures = bench(&["xmin", "--tasks", "200"]);
        assert_positive(&figures, &["tasks_per_second", "held_tasks_per_second", "kept"]);
        let few = ["--tasks", "200", "--processes", "1,2", "--tenants", "7"];
        let small = ["--small-backlog", "200", "--backlog", "400"];
        let figures = bench(&[["scale"].as_slice(), &few, &small].concat());
        assert_positive(
            &figures,
            &["tasks_per_second_1_processes", "tasks_per_second_2_processes"],
        );
        assert_positive(&figures, &["tasks_per_second_small", "tasks_per_second_large", "kept"]);
    }
}

#[test]
fn the_tasks_of_a_killed_worker_are_begun_again_after_its_lease() {
    let figures = bench(&["recovery", "--kills", "1", "--tasks", "3"]);
    assert_positive(&figures, &["redispatch_p50_ms", "redispatch_p99_ms"]);
    // Its last heartbeat was at most a third of the lease before it died.
    let soonest = figures["redispatch_p50_ms"].as_f64();
    assert!(soonest.is_some_and(|millis| millis > 1_000.0), "{figures}");
}

#[test]
fn a_benchmark_that_is_interrupted_removes_its_database() {
    let place = Place::new();
    let running = Running::spawn(&["bench", "--data", &place.data(), "idle", "--seconds", "600"]);
    wait_until("the server is there", || place.server().is_some());
    running.signal(Signal::INT);
    let (status, out) = running.end();
    assert_eq!(status.code(), Some(130), "{out}");
    assert_eq!(place.list(), [""; 0], "nothing is left");
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    let url = "postgres://nobody:secret@127.0.0.1:1/none";
    let out = windlass(&["bench", "--database-url", url, "idle"]);
    assert!(!out.status.success());
    let complaint = text(&out.stderr);
    assert_line(&complaint, &["127.0.0.1:1"]);
    assert!(!complaint.contains("secret"), "{complaint}");
}
