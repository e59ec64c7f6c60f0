//! What handlers leave for the next attempts of their tasks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::testing::{Point, TestEngine};
use windlass::{Ctx, ErrorKind, RetryPolicy, RunState, TaskError, TaskState, Windlass, Workflow};

const SECOND: Duration = Duration::from_secs(1);

type Seen<T> = Arc<Mutex<Vec<T>>>;

fn single<F, Fut>(handler: F) -> Workflow<()>
where
    F: Fn(Ctx<()>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), TaskError>> + Send + 'static,
{
    let mut builder = Workflow::<()>::builder("single");
    builder.task("work").retry(RetryPolicy::fixed(SECOND).attempts(3)).run(handler);
    builder.build().expect("the workflow is valid")
}

#[tokio::test]
async fn an_attempt_goes_on_where_the_one_before_it_failed() {
    let seen: Seen<Option<u32>> = Arc::default();
    let log = seen.clone();
    let workflow = single(move |ctx| {
        let log = log.clone();
        async move {
            let last = ctx.last_checkpoint::<u32>()?;
            log.lock().expect("no handler panics").push(last);
            let next = last.unwrap_or(0) + 10;
            ctx.checkpoint(&next).await?;
            assert_eq!(ctx.last_checkpoint::<u32>()?, last, "that of earlier attempts");
            if next < 30 { Err(TaskError::new("not there yet")) } else { Ok(()) }
        }
    });
    let test = TestEngine::new().register(&workflow);
    let run = test.start(&workflow, ()).await.unwrap();
    test.run_until_idle().await;
    test.advance(SECOND).await;
    test.advance(SECOND).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(*seen.lock().unwrap(), [None, Some(10), Some(20)]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn an_outlived_attempt_is_told_that_its_lease_is_lost() {
    let seen: Seen<(u32, Option<ErrorKind>)> = Arc::default();
    let log = seen.clone();
    let workflow = single(move |ctx| {
        let log = log.clone();
        async move {
            let kept = ctx.checkpoint(&ctx.attempt()).await;
            let kind = kept.as_ref().err().map(windlass::Error::kind);
            log.lock().expect("no handler panics").push((ctx.attempt(), kind));
            if let Err(error) = &kept {
                let text = error.to_string();
                assert!(text.contains("refused: the lease of this attempt is lost"), "{text}");
            }
            Ok(kept?)
        }
    });
    let test = TestEngine::new().register(&workflow);
    let run = test.start(&workflow, ()).await.unwrap();
    test.freeze_worker_at(Point::DuringHandler, "work", 120 * SECOND).await;
    test.advance(121 * SECOND).await;
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(*seen.lock().unwrap(), [(2, None), (1, Some(ErrorKind::LeaseLost))]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_checkpoint_of_another_type_or_too_large_is_an_error_that_names_it() {
    let seen: Seen<String> = Arc::default();
    let log = seen.clone();
    let workflow = single(move |ctx| {
        let log = log.clone();
        async move {
            let error = match ctx.last_checkpoint::<u32>() {
                Err(error) => error,
                Ok(_) => {
                    ctx.checkpoint("a word").await?;
                    ctx.checkpoint(&"x".repeat(2_000_000)).await.expect_err("it is too large")
                }
            };
            log.lock().expect("no handler panics").push(error.to_string());
            Err(TaskError::from(error))
        }
    });
    let test = TestEngine::new().register(&workflow);
    test.start(&workflow, ()).await.unwrap();
    test.run_until_idle().await;
    test.advance(SECOND).await;
    let seen = seen.lock().unwrap();
    assert!(seen[0].contains("checkpoint of task \"work\""), "{seen:?}");
    assert!(seen[0].contains("[WL-0003]") && seen[1].contains("[WL-0003]"), "{seen:?}");
    assert!(seen[1].contains("checkpoint of task \"work\""), "{seen:?}");
}

#[tokio::test]
async fn a_task_given_back_without_a_drain_waits_a_second_and_costs_no_attempt() {
    let seen: Seen<u32> = Arc::default();
    let log = seen.clone();
    let workflow = single(move |ctx| {
        let log = log.clone();
        async move {
            let turns = {
                let mut log = log.lock().expect("no handler panics");
                log.push(ctx.attempt());
                log.len()
            };
            if turns < 10 { Err(TaskError::hand_back()) } else { Ok(()) }
        }
    });
    let test = TestEngine::new().register(&workflow);
    let run = test.start(&workflow, ()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.tasks().await.unwrap()[0].state, TaskState::Scheduled);
    for _ in 1..10 {
        test.advance(SECOND).await;
    }
    assert_eq!(*seen.lock().unwrap(), [1; 10]);
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    test.assert_promises_kept().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_gives_its_task_back_when_cancelled_costs_no_attempt() {
    let workflow = single(async |ctx: Ctx<()>| {
        ctx.cancelled().await;
        ctx.checkpoint(&7).await?;
        Err(TaskError::hand_back())
    });
    let windlass = Windlass::memory();
    let worker = windlass.worker().register(&workflow).grace(10 * SECOND).spawn().unwrap();
    let run = windlass.start(&workflow, ()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    worker.drain().await.unwrap();
    let task = run.tasks().await.unwrap().remove(0);
    assert_eq!((task.state, task.attempt, task.failure), (TaskState::Ready, 0, None));
}
