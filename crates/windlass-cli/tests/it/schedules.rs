//! `windlass schedules` on a real server.

use std::time::{Duration, Instant};

use serde_json::Value;
use windlass::embedded::EmbeddedOptions;
use windlass::schedule::{Cadence, Schedule};
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, TaskError, Windlass, Workflow};

use super::people::{ask, told};
use super::place::Place;
use super::{assert_line, text};

/// Waits until something is so.
async fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never comes to that");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_made_shown_and_steered_from_the_command_line() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let windlass = Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.unwrap();
    let mut report = Workflow::<Value>::builder("report");
    report.task("write").run(async |_: Ctx<Value>| Ok::<_, TaskError>(()));
    let report = report.build().unwrap();
    windlass.store().register(std::sync::Arc::clone(report.definition())).await.unwrap();
    assert_eq!(told(&url, &["schedules", "list"]), "there are no schedules\n");
    let hourly = Cadence::every(Duration::from_secs(3_600)).unwrap();
    let declared = Schedule::new("declared", &report, Value::Null, hourly);
    let put = [
        "schedules",
        "put",
        "nightly",
        "--workflow",
        "report",
        "--cron",
        "0 2 * * MON-FRI",
        "--zone",
        "Europe/Berlin",
        "--input",
        r#"{"kind":"sales"}"#,
        "--missed",
        "all:3",
        "--overlap",
        "queue",
        "--by",
        "anna@ops",
    ];
    assert_line(&told(&url, &put), &["schedule nightly fires next at 20"]);
    let table = told(&url, &["schedules", "list"]);
    assert_line(&table, &["default", "nightly", "report", "active", "in Europe/Berlin"]);
    let run = told(&url, &["schedules", "trigger", "nightly"]);
    let page = told(&url, &["schedules", "show", "nightly"]);
    assert_line(&page, &["overlap", "queue"]);
    assert_line(&page, &["trigger", "started", run.trim()]);
    let json: Value =
        serde_json::from_str(&told(&url, &["schedules", "show", "nightly", "--json"])).unwrap();
    assert_eq!((&json["input"]["kind"], &json["missed"]), (&"sales".into(), &"all:3".into()));
    assert_eq!(json["fires"][0]["run"], run.trim());
    assert_line(&told(&url, &["schedules", "pause", "nightly"]), &["schedule nightly is paused"]);
    assert_line(&told(&url, &["schedules", "list"]), &["nightly", "paused"]);
    assert_line(&told(&url, &["schedules", "resume", "nightly"]), &["schedule nightly is resumed"]);
    let backfill = [
        "schedules",
        "backfill",
        "nightly",
        "--from",
        "2026-01-05T00:00:00Z",
        "--until",
        "2026-01-11T00:00:00Z",
    ];
    assert_eq!(told(&url, &backfill), "started 5 runs; 0 nominal times had one already\n");
    assert_eq!(told(&url, &backfill), "started 0 runs; 5 nominal times had one already\n");
    let log: Value =
        serde_json::from_str(&told(&url, &["log", "--by", "anna@ops", "--json"])).unwrap();
    assert_eq!(log[0]["action"], "put_schedule");
    assert_line(&told(&url, &["leaders"]), &["schedules", "vacant"]);
    let every = ["schedules", "put", "s", "--workflow", "report", "--every"];
    for (arguments, code, complaint) in [
        ([&every[..], &["500ms"]].concat(), 1, &["500ms is shorter than 1s", "[WL-0002]"][..]),
        ([&every[..5], &["--cron", "0 25 * * *"]].concat(), 1, &["hour 25", "at character 3"]),
        ([&every[..5], &["--cron", "0 0 31 2 *"]].concat(), 1, &["it never comes"]),
        (
            [&every[..5], &["--cron", "0 2 * * *", "--tz", "Europe/Berln"]].concat(),
            1,
            &["\"Europe/Berln\" is not known; the nearest names are Europe/Berlin"],
        ),
        (
            [&every[..5], &["--once", "2026-01-01T00:00:00Z"]].concat(),
            1,
            &["never fires", "is past", "[WL-0005]"],
        ),
        (vec!["schedules", "put", "s", "--workflow", "x", "--every", "1h"], 1, &["workflow \"x\""]),
        (
            [&every[..], &["1h", "--workflow-version", "9"]].concat(),
            1,
            &["version 9 of workflow \"report\" (there is 1) does not exist", "[WL-0004]"],
        ),
        (every[..5].to_vec(), 2, &["--cron"]),
        ([&every[..], &["1h", "--grace", "0s"]].concat(), 1, &["grace of 0ns is shorter than 1s"]),
        (vec!["schedules", "pause", "x"], 1, &["schedule \"x\"", "does not exist", "[WL-0004]"]),
    ] {
        let output = ask(&url, &arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert_line(&text(&output.stderr), complaint);
    }
    let declare = windlass.worker().register(&report).schedules("app", [declared]).spawn();
    let declare = declare.unwrap();
    let shown = || told(&url, &["schedules", "list", "--json"]);
    until(|| shown().contains("\"declared\"")).await;
    declare.drain().await.unwrap();
    let put = ["schedules", "put", "declared", "--workflow", "report", "--every", "1h"];
    let output = ask(&url, &put);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_line(&text(&output.stderr), &["declared is declared by app", "--take-over"]);
    told(&url, &[&put[..], &["--take-over"]].concat());
    assert_line(&told(&url, &["schedules", "show", "declared"]), &["owner", "-"]);
    assert_line(&told(&url, &["schedules", "delete", "nightly"]), &["nightly is deleted"]);
    assert_eq!(ask(&url, &["schedules", "delete", "nightly"]).status.code(), Some(1));
}

#[tokio::test]
async fn a_schedule_starts_the_newest_version_unless_one_is_named() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let windlass = Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.unwrap();
    for version in [1, 2] {
        let mut report = Workflow::<Value>::builder("report").version(version);
        report.task("write").run(async |_: Ctx<Value>| Ok::<_, TaskError>(()));
        let report = report.build().unwrap();
        windlass.store().register(std::sync::Arc::clone(report.definition())).await.unwrap();
    }
    let put = ["schedules", "put", "s", "--workflow", "report", "--every", "1h", "--json"];
    let version_of = |arguments: &[&str]| {
        let written: Value = serde_json::from_str(&told(&url, arguments)).unwrap();
        written["version"].clone()
    };
    assert_eq!(version_of(&put), 2);
    assert_eq!(version_of(&[&put[..], &["--workflow-version", "1"]].concat()), 1);
}
