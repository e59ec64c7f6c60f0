//! Functions that begin afresh, as their users see them, in virtual time.

use std::time::Duration;

use windlass::testing::{TestEngine, crash_everywhere};
use windlass::{Ctx, Function, RunState, TaskError, Workflow};

const HOUR: Duration = Duration::from_secs(3_600);

/// Doubles a number.
fn double() -> Function<u64, u64> {
    Function::new("double", async |ctx: Ctx<u64>| Ok::<_, TaskError>(2 * ctx.input()))
        .expect("the function is valid")
}

/// Asks another function for the double until it has come far enough, and forgets each time.
fn climb(double: &Function<u64, u64>) -> Function<u64, u64> {
    let double = double.clone();
    let climb = move |ctx: Ctx<u64>| {
        let double = double.clone();
        async move {
            let next = ctx.run(&double, *ctx.input()).await?;
            ctx.sleep(HOUR).await?;
            if next < 100 { Err(ctx.continue_with(&next)) } else { Ok(next) }
        }
    };
    Function::new("climb", climb).expect("the function is valid")
}

#[tokio::test]
async fn a_function_begins_afresh_as_the_same_run() {
    let double = double();
    let climb = climb(&double);
    let test = TestEngine::new().register(&climb).register(&double);
    let run = test.start(&climb, 1).await.unwrap();
    test.advance(8 * HOUR).await;
    let record = run.get().await.unwrap();
    assert_eq!((record.state, record.round), (RunState::Succeeded, 7));
    assert_eq!(run.output(climb.output()).await.unwrap(), 128, "each asked for a run of its own");
    assert_eq!(run.steps("climb").await.unwrap().len(), 2, "the record does not grow");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_function_that_begins_afresh_ends_the_same_wherever_its_worker_dies() {
    let double = double();
    let climb = climb(&double);
    let report = crash_everywhere(&climb, 30).register(&double).await;
    assert_eq!(report.state(), RunState::Succeeded);
}

#[tokio::test]
async fn a_task_among_others_cannot_begin_afresh_and_says_why() {
    let mut workflow = Workflow::<u64>::builder("two");
    let first =
        workflow.task("first").run(async |ctx: Ctx<u64>| Err::<(), _>(ctx.continue_with(&7)));
    workflow.task("second").after(&first).run(async |_| Ok::<_, TaskError>(()));
    let workflow = workflow.build().unwrap();
    let test = TestEngine::new().register(&workflow);
    let run = test.start(&workflow, 1).await.unwrap();
    test.run_until_idle().await;
    let failure = run.tasks().await.unwrap()[0].failure.clone().expect("it says why");
    assert!(failure.message.contains("only a workflow of one task"), "{failure}");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_function_that_begins_afresh_gives_others_new_keys() {
    let keys = Function::new("keys", async |ctx: Ctx<Vec<String>>| {
        let mut seen = ctx.input().clone();
        seen.push(ctx.uuid().to_string());
        let inner = ctx.step("inner", async || Ok::<_, TaskError>(ctx.uuid().to_string()));
        seen.push(inner.await?);
        ctx.sleep(HOUR).await?;
        if seen.len() < 6 { Err(ctx.continue_with(&seen)) } else { Ok(seen) }
    });
    let keys = keys.expect("the function is valid");
    let test = TestEngine::new().register(&keys);
    let run = test.start(&keys, Vec::new()).await.unwrap();
    test.advance(5 * HOUR).await;
    let mut seen = run.output(keys.output()).await.unwrap();
    assert_eq!(seen.len(), 6);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6, "{seen:?}");
    test.assert_promises_kept().await;
}
