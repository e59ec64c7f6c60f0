use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

use futures_util::FutureExt;

use super::crash_everywhere;
use crate::{Ctx, Function, TaskError};

fn three_steps() -> Function<u32, u32> {
    let body = async |ctx: Ctx<u32>| {
        let mut sum = 0;
        for _ in 0..3 {
            sum += ctx.step("add", async || Ok::<_, TaskError>(*ctx.input())).await?;
        }
        Ok::<_, TaskError>(sum)
    };
    Function::new("three", body).unwrap()
}

async fn message_of<T>(trial: impl Future<Output = T>) -> Option<String> {
    let panic = AssertUnwindSafe(trial).catch_unwind().await.err()?;
    Some(*panic.downcast::<String>().expect("it is told in words"))
}

#[tokio::test]
async fn a_record_that_is_accepted_and_dropped_is_found() {
    let three = three_steps();
    assert_eq!(message_of(crash_everywhere(&three, 7).into_future()).await, None);
    let broken = crash_everywhere(&three, 7).dropping_records();
    let message = message_of(broken.into_future()).await.expect("the bug is planted");
    assert!(message.starts_with("the store lost what it had accepted"), "{message}");
    assert!(message.contains("the recorded result of call 1 of task \"three\""), "{message}");
}

/// How often the step of the next test was run.
static TRIES: Mutex<u32> = Mutex::new(0);

#[tokio::test]
async fn an_output_that_depends_on_how_often_a_step_is_run_is_found_with_its_place() {
    let counting = Function::new("counting", async |ctx: Ctx<()>| {
        let step = ctx.step("count", async || {
            let mut tries = TRIES.lock().unwrap();
            *tries += 1;
            Ok::<_, TaskError>(*tries)
        });
        step.await
    });
    let trials =
        crash_everywhere(&counting.unwrap(), ()).before_each(|| *TRIES.lock().unwrap() = 0);
    let message = message_of(trials.into_future()).await.expect("it is run twice in one trial");
    let expected = "when a worker dies before the commit of record of \"count\" (place ";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("counting: succeeded with 1"), "{message}");
    assert!(message.contains("counting: succeeded with 2"), "{message}");
}
