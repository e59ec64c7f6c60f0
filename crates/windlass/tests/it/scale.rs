//! Runs of ten thousand tasks. How long they take is measured in `benches/scale.rs`.

use windlass::testing::TestEngine;
use windlass::{RunState, Workflow};

use crate::shapes;

async fn run(workflow: &Workflow<()>) -> (TestEngine, windlass::RunHandle) {
    let test = TestEngine::new().register(workflow).slots(500);
    let run = test.start(workflow, ()).await.expect("the workflow is valid");
    test.run_until_idle().await;
    let record = run.get().await.expect("it was started");
    assert_eq!(record.state, RunState::Succeeded);
    assert_eq!(record.open_tasks, 0);
    test.assert_promises_kept().await;
    (test, run)
}

#[tokio::test]
async fn a_chain_of_ten_thousand_tasks_ends() {
    let (_test, run) = run(&shapes::chain(10_000)).await;
    let last = &run.tasks().await.unwrap()[9_999];
    assert_eq!(last.output.as_ref().unwrap().as_str(), "10000");
}

#[tokio::test]
async fn a_fan_out_to_ten_thousand_tasks_and_back_ends() {
    let (_test, run) = run(&shapes::fan_out(10_000)).await;
    let sum = &run.tasks().await.unwrap()[10_001];
    assert_eq!(sum.output.as_ref().unwrap().as_str(), "10000");
}

#[tokio::test]
async fn a_random_dag_of_ten_thousand_tasks_ends() {
    let (_test, run) = run(&shapes::random(10_000)).await;
    assert_eq!(run.tasks().await.unwrap().len(), 10_000);
}

#[tokio::test]
async fn a_failure_at_the_head_of_ten_thousand_tasks_settles_them_all() {
    let mut builder = Workflow::<()>::builder("doomed");
    let mut last = builder
        .task("root")
        .run(async |_| Err::<(), _>(windlass::TaskError::new("no").permanent()));
    for i in 1..10_000 {
        last = builder
            .task(format!("link-{i}"))
            .after(&last)
            .run(async |_| Ok::<(), windlass::TaskError>(()));
    }
    let doomed = builder.build().unwrap();
    let test = TestEngine::new().register(&doomed);
    let run = test.start(&doomed, ()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Failed);
    let skipped = run.tasks().await.unwrap();
    let skipped = skipped.iter().filter(|task| task.state == windlass::TaskState::Skipped);
    assert_eq!(skipped.count(), 9_999);
    test.assert_promises_kept().await;
}
