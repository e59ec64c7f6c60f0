//! `windlass workers` on a real server.

use std::time::{Duration, Instant};

use serde_json::Value;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, TaskError, Windlass, Workflow};

use super::people::{ask, told};
use super::place::Place;
use super::{assert_line, text};

/// How long a drain may take on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A task that ends once its worker drains.
fn until_drained() -> Workflow<()> {
    let mut workflow = Workflow::<()>::builder("until-drained");
    workflow.task("wait").run(async |ctx: Ctx<()>| {
        while !ctx.is_draining() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, TaskError>(())
    });
    workflow.build().expect("the workflow is right")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_worker_finishes_its_task_and_leaves() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let windlass = Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.unwrap();
    let workflow = until_drained();
    let worker = windlass.worker().name("mail-1").register(&workflow).spawn().unwrap();
    let run = windlass.start(&workflow, ()).await.unwrap();
    let began = Instant::now();
    let id = loop {
        let listed: Value = serde_json::from_str(&told(&url, &["workers", "--json"])).unwrap();
        if listed[0]["tasks"] == 1 {
            break listed[0]["id"].as_str().expect("it has an id").to_owned();
        }
        assert!(began.elapsed() < WAIT_MAX, "it holds no task: {listed}");
    };
    let stranger = "0190a0b0-0000-7000-8000-000000000000";
    let refused = ask(&url, &["workers", "drain", stranger]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_line(&text(&refused.stderr), &[stranger, "not found", "windlass workers"]);
    let said = told(&url, &["workers", "drain", &id]);
    assert_eq!(said, "Draining worker mail-1: it finishes 1 task and exits.\n");
    // Nothing else ends the task, and the worker leaves by itself.
    run.wait().await.unwrap();
    while told(&url, &["workers"]) != "no workers\n" {
        assert!(began.elapsed() < WAIT_MAX, "it does not leave");
    }
    worker.drain().await.expect("it has ended well");
}
