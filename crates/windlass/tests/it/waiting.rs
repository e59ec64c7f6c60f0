//! Waiting for one of several things, and for many of a kind, in virtual time.

use std::time::Duration;

use windlass::function::{OneOf2, OneOf3};
use windlass::testing::{TestEngine, crash_everywhere};
use windlass::{Ctx, Function, RunState, TaskError, Workflow};

const HOUR: Duration = Duration::from_secs(3_600);

/// Takes its input in hours.
fn slow() -> Function<u32, u32> {
    let slow = async |ctx: Ctx<u32>| {
        ctx.sleep(*ctx.input() * HOUR).await?;
        match *ctx.input() {
            13 => Err(TaskError::new("unlucky").code("luck").permanent()),
            hours => Ok(hours),
        }
    };
    Function::new("slow", slow).expect("the function is valid")
}

#[tokio::test]
async fn the_first_of_signal_sleep_and_child_is_what_a_function_goes_on_with() {
    let slow = slow();
    let child = slow.clone();
    let race = move |ctx: Ctx<(u32, u32)>| {
        let child = child.clone();
        async move {
            let (hours, limit) = *ctx.input();
            let came = ctx.signal::<String>("came");
            let calls = (came, ctx.run(&child, hours), ctx.sleep(limit * HOUR));
            let first = match ctx.wait_any(calls).await? {
                OneOf3::First(text) => text,
                OneOf3::Second(hours) => format!("child after {hours}"),
                OneOf3::Third(()) => "too late".to_owned(),
            };
            // Run again behind another rest, it comes to the same.
            ctx.sleep(HOUR).await?;
            Ok::<_, TaskError>(first)
        }
    };
    let race = Function::new("race", race).expect("the function is valid");
    let test = TestEngine::new().register(&race).register(&slow);
    let child = test.start(&race, (2, 5)).await.unwrap();
    let sleep = test.start(&race, (9, 3)).await.unwrap();
    let signal = test.start(&race, (9, 9)).await.unwrap();
    let failed = test.start(&race, (13, 20)).await.unwrap();
    test.pass(HOUR).await;
    signal.signal("came", "signal").await.unwrap();
    test.advance(30 * HOUR).await;
    for (run, expected) in [(child, "child after 2"), (sleep, "too late"), (signal, "signal")] {
        assert_eq!(run.output(race.output()).await.unwrap(), expected);
    }
    let failure = failed.tasks().await.unwrap()[0].failure.clone().expect("its child failed");
    assert_eq!(failure.code.word(), "luck");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn what_comes_at_the_same_time_is_taken_in_the_order_of_its_naming() {
    let both = Function::new("both", async |ctx: Ctx<()>| {
        let calls = (ctx.sleep(HOUR), ctx.sleep(HOUR));
        let is_first = matches!(ctx.wait_any(calls).await?, OneOf2::First(()));
        Ok::<_, TaskError>(is_first)
    });
    let both = both.expect("the function is valid");
    let report = crash_everywhere(&both, ()).await;
    assert_eq!(report.state(), RunState::Succeeded);
    let test = TestEngine::new().register(&both);
    let run = test.start(&both, ()).await.unwrap();
    test.advance(2 * HOUR).await;
    assert!(run.output(both.output()).await.unwrap());
}

#[tokio::test]
async fn a_task_of_a_workflow_maps_a_function_over_what_it_reads() {
    let slow = slow();
    let mut workflow = Workflow::<Vec<u32>>::builder("mapping");
    let list = workflow
        .task("list")
        .run(async |ctx: Ctx<Vec<u32>>| Ok::<_, TaskError>(ctx.input().clone()));
    let mapped = workflow.task("map").reads(&list).map(&slow).concurrency(2).add();
    let sum = workflow
        .task("sum")
        .reads(&mapped)
        .run(async |_: Ctx<Vec<u32>>, all: Vec<u32>| Ok::<_, TaskError>(all.iter().sum::<u32>()));
    let workflow = workflow.build().unwrap();
    let test = TestEngine::new().register(&workflow).register(&slow);
    let run = test.start(&workflow, vec![3, 1, 2]).await.unwrap();
    let none = test.start(&workflow, Vec::new()).await.unwrap();
    let unlucky = test.start(&workflow, vec![1, 13]).await.unwrap();
    test.pass(HOUR).await;
    let tasks = run.tasks().await.unwrap();
    assert_eq!(tasks[1].worker, None, "no worker has it while its runs go on");
    test.advance(20 * HOUR).await;
    assert_eq!(run.output(&mapped).await.unwrap(), [3, 1, 2]);
    assert_eq!(run.output(&sum).await.unwrap(), 6);
    assert_eq!(none.output(&sum).await.unwrap(), 0);
    assert_eq!(unlucky.get().await.unwrap().state, RunState::Failed);
    let failure = unlucky.tasks().await.unwrap()[1].failure.clone().expect("a run failed");
    assert_eq!(failure.code.word(), "luck");
    test.assert_promises_kept().await;
}
