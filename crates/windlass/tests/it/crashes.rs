//! Workflows whose worker dies at every place, one after the other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::testing::{CrashPlace, LinkCall, Point, crash_everywhere};
use windlass::{Ctx, Function, RetryPolicy, RunState, TaskError, TaskState, Workflow};

const HOUR: Duration = Duration::from_secs(3_600);

/// What happened outside of Windlass.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().expect("no handler panics with it").push(what.into());
    }

    fn clear(&self) {
        self.0.lock().expect("no handler panics with it").clear();
    }

    fn count(&self, what: &str) -> usize {
        let effects = self.0.lock().expect("no handler panics with it");
        effects.iter().filter(|effect| *effect == what).count()
    }
}

/// Whether the worker died before the step of this name was recorded.
fn is_before_record(place: Option<&CrashPlace>, step: &str) -> bool {
    match place {
        Some(CrashPlace::Call { call: LinkCall::Record, names, is_applied: false }) => {
            names.contains(&format!("{step:?}"))
        }
        Some(CrashPlace::Call { .. } | CrashPlace::Point { .. }) | None => false,
    }
}

#[tokio::test]
async fn a_step_runs_again_only_if_its_record_was_not_committed() {
    let effects = Effects::default();
    let noted = effects.clone();
    let steps = Function::new("steps", move |ctx: Ctx<u32>| {
        let effects = noted.clone();
        async move {
            let mut sum = 0;
            for name in ["one", "two", "three"] {
                let step = ctx.step(name, async || {
                    effects.note(name);
                    Ok::<_, TaskError>(ctx.input() + 1)
                });
                sum += step.await?;
                ctx.sleep(HOUR).await?;
            }
            Ok::<_, TaskError>(sum)
        }
    });
    let mut trials = 0;
    let report = crash_everywhere(&steps.unwrap(), 1)
        .before_each(|| effects.clear())
        .after_each(|place| {
            trials += 1;
            for name in ["one", "two", "three"] {
                let times = if is_before_record(place, name) { 2 } else { 1 };
                assert_eq!(effects.count(name), times, "{name}: {place:?}");
            }
        })
        .await;
    assert_eq!(report.state(), RunState::Succeeded);
    assert_eq!(trials, report.places().len() + 1);
    for name in ["one", "two", "three"] {
        let is_before = |place: &&CrashPlace| is_before_record(Some(*place), name);
        assert_eq!(report.places().iter().filter(is_before).count(), 1, "{name}");
    }
    let at = |point, task: &str| CrashPlace::Point { point, task: task.to_owned() };
    for point in [
        Point::BeforeHandler,
        Point::DuringHandler,
        Point::AfterHandler,
        Point::BeforeCommit,
        Point::AfterCommit,
    ] {
        let place = at(point, "steps");
        let times = report.places().iter().filter(|it| **it == place).count();
        assert_eq!(times, 4, "{place} is passed between all rests");
    }
}

#[tokio::test]
async fn a_dag_with_a_sleep_ends_the_same_wherever_its_worker_dies() {
    let mut order = Workflow::<u32>::builder("order");
    let policy = RetryPolicy::exponential().attempts(3);
    let charge = order.task("charge").retry(policy).run(async |ctx: Ctx<u32>| {
        if ctx.attempt() == 1 { Err(TaskError::new("busy")) } else { Ok(*ctx.input()) }
    });
    let window = order.sleep("window", 24 * HOUR).after(&charge).add();
    let pack = order.task("pack").reads(&charge).run(async |_, cents: u32| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok::<_, TaskError>(cents + 1)
    });
    let ship = order.task("ship").reads(&pack).after(&window);
    ship.run(async |_, cents: u32| Ok::<_, TaskError>(cents + 1));
    let report = crash_everywhere(&order.build().unwrap(), 5).await;
    assert_eq!(report.state(), RunState::Succeeded);
    assert!(report.places().len() >= 30, "{:#?}", report.places());
}

#[tokio::test]
async fn signals_children_and_checkpoints_survive_every_crash() {
    let double = Function::new("double", async |ctx: Ctx<u32>| {
        ctx.step("work", async || Ok::<_, TaskError>(2 * ctx.input())).await
    });
    let double = double.unwrap();
    let child = double.clone();
    let parent = Function::new("parent", move |ctx: Ctx<u32>| {
        let child = child.clone();
        async move {
            if ctx.last_checkpoint::<u32>()?.is_none() {
                ctx.checkpoint(&1_u32).await?;
            }
            let first = ctx.signal::<u32>("number").await?;
            let second = ctx.signal::<u32>("number").timeout(HOUR).await?;
            let third = ctx.signal::<u32>("number").timeout(HOUR).await?;
            let all = ctx.map(&child, 0..*ctx.input()).concurrency(2).await?;
            let sum: u32 = all.into_iter().sum::<Result<u32, TaskError>>()?;
            let forgotten = ctx.start(&child, 100).await?;
            let one = ctx.run(&child, sum).await?;
            Ok::<_, TaskError>((first, second, third, one, forgotten, ctx.uuid()))
        }
    });
    let report = crash_everywhere(&parent.unwrap(), 4)
        .register(&double)
        .drive(async |test, run| {
            run.signal("number", &1).await.unwrap();
            while run.tasks().await.unwrap()[0].state != TaskState::Waiting {
                test.advance(Duration::from_secs(1)).await;
            }
            run.signal("number", &2).await.unwrap();
        })
        .await;
    assert_eq!(report.state(), RunState::Succeeded);
    for call in [
        LinkCall::Claim,
        LinkCall::Finish,
        LinkCall::Checkpoint,
        LinkCall::Record,
        LinkCall::TakeSignals,
        LinkCall::StartChildren,
    ] {
        for is_applied in [false, true] {
            let is_such = |place: &CrashPlace| {
                matches!(place, CrashPlace::Call { call: it, is_applied: side, .. }
                    if *it == call && *side == is_applied)
            };
            assert!(report.places().iter().any(is_such), "{call:?} {is_applied}");
        }
    }
}

#[tokio::test]
#[should_panic(expected = "task \"deaf\" of workflow \"deaf\" is waiting")]
async fn a_workflow_that_waits_for_what_does_not_come_is_told() {
    let deaf = Function::new("deaf", async |ctx: Ctx<()>| ctx.signal::<()>("go").await);
    crash_everywhere(&deaf.unwrap(), ()).await;
}

#[tokio::test]
#[should_panic(expected = "does the workflow decide by chance")]
async fn a_workflow_that_does_other_things_each_time_is_told() {
    let steps = Mutex::new(10);
    let shrinking = Function::new("shrinking", move |ctx: Ctx<()>| {
        let count = {
            let mut steps = steps.lock().expect("no handler panics with it");
            *steps -= 1;
            *steps
        };
        async move {
            for _ in 0..count {
                ctx.step("step", async || Ok::<_, TaskError>(())).await?;
            }
            Ok::<_, TaskError>(())
        }
    });
    crash_everywhere(&shrinking.unwrap(), ()).await;
}

#[tokio::test]
#[should_panic(expected = "it ends otherwise")]
async fn a_task_that_is_given_up_when_its_worker_is_lost_is_told() {
    let fragile = Function::<(), ()>::builder("fragile").retry(RetryPolicy::none());
    let fragile = fragile.run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    crash_everywhere(&fragile.unwrap(), ()).await;
}
