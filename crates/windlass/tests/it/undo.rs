//! What compensates the steps of durable functions, as their users see it, in virtual time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::testing::TestEngine;
use windlass::{Ctx, ErrorKind, Function, RetryPolicy, RunHandle, RunState, TaskError, Workflow};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// What happened outside of Windlass.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().expect("no handler panics with it").push(what.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().expect("no handler panics with it").clone()
    }

    /// A step of this name that can be undone.
    async fn step<I>(&self, ctx: &Ctx<I>, name: &'static str) -> Result<String, TaskError> {
        let step = ctx.step(name, async || {
            self.note(name);
            Ok::<_, TaskError>(format!("{name}'s result"))
        });
        let effects = self.clone();
        let undone = step.compensate(async move |result: String| {
            effects.note(format!("undo {result}"));
            Ok::<_, TaskError>(())
        });
        undone.await
    }
}

fn function<F, Fut>(effects: &Effects, body: F) -> Function<u32, u32>
where
    F: Fn(Ctx<u32>, Effects) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u32, TaskError>> + Send + 'static,
{
    let effects = effects.clone();
    let builder = Function::<u32, u32>::builder("function");
    let builder = builder.retry(RetryPolicy::fixed(SECOND).attempts(3));
    builder.run(move |ctx| body(ctx, effects.clone())).expect("the function is valid")
}

fn no(text: &str) -> TaskError {
    TaskError::new(text).permanent()
}

async fn undone_by(run: &RunHandle) -> RunHandle {
    run.undone_by().await.expect("a store in memory answers").expect("it is undone")
}

async fn state(run: &RunHandle) -> RunState {
    run.get().await.expect("it exists").state
}

#[tokio::test]
async fn a_function_that_fails_is_undone_from_its_last_step_to_its_first() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, effects| {
        let release = effects.clone();
        let defer = ctx.defer("release", async move || {
            release.note("released");
            Ok::<_, TaskError>(())
        });
        defer.await?;
        effects.step(&ctx, "reserve").await?;
        ctx.step("log", async || Ok::<_, TaskError>(())).await?;
        ctx.sleep(HOUR).await?;
        effects.step(&ctx, "charge").await?;
        Err(no("sold out"))
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(2 * HOUR).await;
    assert_eq!(state(&run).await, RunState::Failed);
    assert_eq!(state(&undone_by(&run).await).await, RunState::Succeeded);
    let expected =
        ["reserve", "charge", "undo charge's result", "undo reserve's result", "released"];
    assert_eq!(effects.all(), expected);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn what_succeeds_is_undone_only_if_somebody_asks() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, effects| {
        effects.step(&ctx, "charge").await?;
        Ok(1)
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(SECOND).await;
    assert!(run.undone_by().await.unwrap().is_none());
    let by = run.undo().await.unwrap();
    assert_eq!(by.id(), run.undo().await.unwrap().id(), "asked twice");
    test.advance(SECOND).await;
    assert_eq!(state(&by).await, RunState::Succeeded);
    assert_eq!(effects.all(), ["charge", "undo charge's result"]);
    let error = run.retry().await.expect_err("it did not fail");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_function_that_is_cancelled_while_it_sleeps_is_undone_and_begins_nothing() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, effects| {
        effects.step(&ctx, "charge").await?;
        ctx.sleep(HOUR).await?;
        effects.step(&ctx, "ship").await?;
        Ok(1)
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(SECOND).await;
    run.cancel("no longer wanted").await.unwrap();
    test.advance(2 * HOUR).await;
    assert_eq!(state(&undone_by(&run).await).await, RunState::Succeeded);
    assert_eq!(effects.all(), ["charge", "undo charge's result"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_step_that_was_at_work_is_not_begun_again_while_the_run_is_undone() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, effects| {
        effects.step(&ctx, "charge").await?;
        let ship = ctx.step("ship", async || {
            effects.note("ship");
            tokio::time::sleep(HOUR).await;
            Ok::<_, TaskError>(1)
        });
        ship.await
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.pass(SECOND).await;
    run.cancel("no longer wanted").await.unwrap();
    test.advance(2 * HOUR).await;
    assert_eq!(state(&undone_by(&run).await).await, RunState::Succeeded);
    assert_eq!(effects.all(), ["charge", "ship", "undo charge's result"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn what_undoes_a_step_is_tried_again_and_what_is_undone_is_not() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, effects| {
        let first = ctx.step("first", async || Ok::<_, TaskError>(()));
        // Said before what it is for.
        let first = first.undo_retry(RetryPolicy::fixed(SECOND).attempts(3));
        let stubborn = effects.clone();
        let first = first.compensate(async move |()| {
            stubborn.note("try");
            match stubborn.all().iter().filter(|effect| *effect == "try").count() {
                3 => Ok(()),
                _ => Err(TaskError::new("not now")),
            }
        });
        first.await?;
        effects.step(&ctx, "second").await?;
        Err(no("sold out"))
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(Duration::from_millis(1_500)).await;
    assert_eq!(effects.all(), ["second", "undo second's result", "try", "try"]);
    test.advance(SECOND).await;
    assert_eq!(effects.all(), ["second", "undo second's result", "try", "try", "try"]);
    assert_eq!(state(&undone_by(&run).await).await, RunState::Succeeded);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn an_undoing_that_fails_says_of_what_and_goes_on_when_it_is_retried() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, effects| {
        effects.step(&ctx, "first").await?;
        let charge = ctx.step("charge", async || Ok::<_, TaskError>(()));
        let once = effects.clone();
        let charge = charge.compensate(async move |()| {
            once.note("refund");
            match once.all().iter().filter(|effect| *effect == "refund").count() {
                1 => Err(no("the bank is closed")),
                _ => Ok(()),
            }
        });
        charge.await?;
        effects.step(&ctx, "last").await?;
        Err(no("sold out"))
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(SECOND).await;
    let by = undone_by(&run).await;
    assert_eq!(state(&by).await, RunState::Failed);
    let failure = by.tasks().await.unwrap()[0].failure.clone().expect("it says why");
    let wanted = format!("step \"charge\" of task \"function\" of run {}", run.id());
    assert!(failure.message.contains(&wanted), "{failure}");
    assert!(failure.message.contains("the bank is closed"), "{failure}");
    by.retry().await.unwrap();
    test.advance(SECOND).await;
    assert_eq!(state(&by).await, RunState::Succeeded);
    let expected =
        ["first", "last", "undo last's result", "refund", "refund", "undo first's result"];
    assert_eq!(effects.all(), expected);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_step_that_lost_a_race_and_was_done_is_undone() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, effects| {
        tokio::select! {
            biased;
            step = effects.step(&ctx, "first") => drop(step?),
            step = effects.step(&ctx, "second") => drop(step?),
        }
        Err(no("sold out"))
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(SECOND).await;
    assert_eq!(run.steps("function").await.unwrap().len(), 2, "both were done");
    assert_eq!(state(&undone_by(&run).await).await, RunState::Succeeded);
    let expected = ["first", "second", "undo second's result", "undo first's result"];
    assert_eq!(effects.all(), expected);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn code_that_does_not_say_any_more_how_a_step_is_undone_fails_and_names_it() {
    let effects = Effects::default();
    let knows_how = Arc::new(AtomicBool::new(true));
    let code = Arc::clone(&knows_how);
    let order = function(&effects, move |ctx, effects| {
        let code = Arc::clone(&code);
        async move {
            if code.load(Ordering::Relaxed) {
                effects.step(&ctx, "charge").await?;
            } else {
                ctx.step("charge", async || Ok::<_, TaskError>(String::new())).await?;
            }
            ctx.sleep(HOUR).await?;
            Ok(1)
        }
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(SECOND).await;
    knows_how.store(false, Ordering::Relaxed);
    run.cancel("no longer wanted").await.unwrap();
    test.advance(SECOND).await;
    let by = undone_by(&run).await;
    let failure = by.tasks().await.unwrap()[0].failure.clone().expect("it says why");
    assert_eq!(failure.code.word(), "divergence", "{failure}");
    assert!(failure.message.contains("step \"charge\""), "{failure}");
    knows_how.store(true, Ordering::Relaxed);
    test.advance(HOUR).await;
    assert_eq!(state(&by).await, RunState::Succeeded, "the right code is back");
    assert_eq!(effects.all(), ["charge", "undo charge's result"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn tasks_of_a_workflow_are_undone_behind_those_that_depend_on_them() {
    let effects = Effects::default();
    let mut order = Workflow::<u32>::builder("order");
    let (first, second) = (effects.clone(), effects.clone());
    let reserve = order.task("reserve").run(move |ctx: Ctx<u32>| {
        let effects = first.clone();
        async move { effects.step(&ctx, "reserve").await }
    });
    let charge = order.task("charge").reads(&reserve).run(move |ctx: Ctx<u32>, given: String| {
        let effects = second.clone();
        async move {
            assert_eq!(given, "reserve's result");
            effects.step(&ctx, "charge").await
        }
    });
    order.task("ship").after(&charge).run(async |_: Ctx<u32>| Err::<(), _>(no("sold out")));
    let order = order.build().unwrap();
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(SECOND).await;
    assert_eq!(state(&undone_by(&run).await).await, RunState::Succeeded);
    let expected = ["reserve", "charge", "undo charge's result", "undo reserve's result"];
    assert_eq!(effects.all(), expected);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn what_undoes_a_step_is_given_the_same_ids_whenever_it_is_tried() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, effects| {
        for name in ["one", "two"] {
            let step = ctx.step(name, async || Ok::<_, TaskError>(ctx.uuid()));
            let (inner, effects) = (ctx.clone(), effects.clone());
            let step = step.compensate(async move |uuid: uuid::Uuid| {
                let key = inner.uuid();
                assert_ne!(key, uuid, "undoing is another request than doing");
                effects.note(format!("{name} {key}"));
                match effects.all().len() {
                    1 | 3 => Err(TaskError::new("not now")),
                    _ => Ok(()),
                }
            });
            step.await?;
        }
        Err(no("sold out"))
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(HOUR).await;
    assert_eq!(state(&undone_by(&run).await).await, RunState::Succeeded);
    let all = effects.all();
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!((&all[0], &all[2]), (&all[1], &all[3]), "{all:?}");
    assert_ne!(all[0].split_once(' ').unwrap().1, all[2].split_once(' ').unwrap().1);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_function_that_panics_is_undone() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, effects| {
        let charged = effects.step(&ctx, "charge").await?;
        panic!("no lorry for {charged}");
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(HOUR).await;
    assert_eq!(state(&run).await, RunState::Failed);
    assert_eq!(state(&undone_by(&run).await).await, RunState::Succeeded);
    assert_eq!(effects.all(), ["charge", "undo charge's result"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_call_made_by_what_undoes_a_step_is_refused() {
    let effects = Effects::default();
    let order = function(&effects, async |ctx, _| {
        let step = ctx.step("step", async || Ok::<_, TaskError>(()));
        let inner = ctx.clone();
        let step = step.compensate(async move |()| inner.sleep(SECOND).await);
        step.undo_retry(RetryPolicy::none()).await?;
        Err(no("sold out"))
    });
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 0).await.unwrap();
    test.advance(SECOND).await;
    let by = undone_by(&run).await;
    let failure = by.tasks().await.unwrap()[0].failure.clone().expect("it says why");
    assert!(failure.message.contains("is called within a step"), "{failure}");
    test.assert_promises_kept().await;
}
