//! Keys that are exchanged, missing or new, as users of a sealed engine see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::store::sealed::SealedStore;
use windlass::{
    Ctx, ErrorKind, FailureCode, Function, Keyring, RetryPolicy, RunHandle, RunState, TaskError,
    TaskState, Windlass, Workflow,
};

const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    customer: String,
    card: String,
}

fn order() -> Order {
    Order { customer: "c-7".to_owned(), card: "4111".to_owned() }
}

fn ring(lines: &[&str]) -> Keyring {
    Keyring::parse(&lines.join("\n")).expect("the lines are keys")
}

/// Gives its input back.
fn echo() -> (Workflow<Order>, windlass::Task<Order>) {
    let mut echo = Workflow::<Order>::builder("echo");
    let task = echo.task("echo").retry(RetryPolicy::fixed(Duration::ZERO).attempts(2));
    let task = task.run(async |ctx: Ctx<Order>| Ok::<_, TaskError>(ctx.input().clone()));
    (echo.build().expect("the workflow is valid"), task)
}

async fn ended(run: &RunHandle) -> RunState {
    let record = tokio::time::timeout(PATIENCE, run.wait()).await.expect("it ends in time");
    record.expect("a store in memory answers").state
}

async fn failure_of(run: &RunHandle) -> windlass::Failure {
    assert_eq!(ended(run).await, RunState::Failed);
    let tasks = run.tasks().await.expect("a store in memory answers");
    let failed = tasks.into_iter().find(|task| task.state == TaskState::Failed);
    failed.and_then(|task| task.failure).expect("it says why it failed")
}

#[tokio::test]
async fn a_start_that_is_repeated_with_other_keys_names_the_same_run() {
    let (k1, k2) = (Keyring::fresh_line("k1").unwrap(), Keyring::fresh_line("k2").unwrap());
    let within = Windlass::memory();
    let (echo, _) = echo();
    let before = within.clone().sealed(ring(&[&k1]));
    let keyed = before.start(&echo, order()).key("order-1").await.unwrap();
    let named = before.start(&echo, order()).await.unwrap();
    let unsealed = within.start(&echo, order()).await.unwrap();
    within.start(&echo, order()).key("order-0").await.unwrap();

    let after = within.clone().sealed(ring(&[&k2, &k1]));
    let again = after.start(&echo, order()).key("order-1").await.unwrap();
    assert_eq!(again.id(), keyed.id());
    let again = after.start(&echo, order()).id(named.id()).await.unwrap();
    assert_eq!(again.id(), named.id());
    let again = after.start(&echo, order()).id(unsealed.id()).await.unwrap();
    assert_eq!(again.id(), unsealed.id(), "it was there before there were keys");

    let other = Order { card: "4242".to_owned(), ..order() };
    for start in [
        after.start(&echo, other.clone()).key("order-1"),
        after.start(&echo, other.clone()).id(named.id()),
        before.start(&echo, other).key("order-1"),
        // It was made in plain: what is there is not known for the same.
        after.start(&echo, order()).key("order-0"),
    ] {
        assert_eq!(start.await.unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert_eq!(after.list(windlass::store::RunFilter::default()).await.unwrap().runs.len(), 4);
}

#[tokio::test]
async fn what_was_sealed_with_an_older_key_goes_on_after_a_rotation() {
    let (k1, k2) = (Keyring::fresh_line("k1").unwrap(), Keyring::fresh_line("k2").unwrap());
    let within = Windlass::memory();
    let (echo, task) = echo();
    let run = within.clone().sealed(ring(&[&k1])).start(&echo, order()).await.unwrap();
    let after = within.clone().sealed(ring(&[&k2, &k1]).required(true));
    let worker = after.worker().register(&echo).spawn().unwrap();
    let run = after.run(run.id());
    assert_eq!(ended(&run).await, RunState::Succeeded);
    assert_eq!(run.output(&task).await.unwrap(), order());
    worker.drain().await.unwrap();
    let stored = within.run(run.id()).tasks().await.unwrap();
    let output = stored[0].output.as_ref().unwrap().as_str().to_owned();
    assert!(output.starts_with(r#"{"wl-sealed":"1.k2."#), "{output}");
}

#[tokio::test]
async fn a_value_whose_key_is_not_there_is_an_error_that_names_it_and_no_input() {
    let (k1, k2) = (Keyring::fresh_line("k1").unwrap(), Keyring::fresh_line("k2").unwrap());
    let within = Windlass::memory();
    let calls = Arc::new(AtomicU32::new(0));
    let mut any = Workflow::<serde_json::Value>::builder("any");
    let counted = Arc::clone(&calls);
    any.task("any").retry(RetryPolicy::fixed(Duration::ZERO).attempts(2)).run(
        move |_: Ctx<serde_json::Value>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, TaskError>(()) }
        },
    );
    let any = any.build().unwrap();
    let before = within.clone().sealed(ring(&[&k1]));
    let run = before.start(&any, serde_json::json!({ "card": "4111" })).await.unwrap();
    let without = within.clone().sealed(ring(&[&k2]));
    let error = without.run(run.id()).get().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Payload);
    let why = format!(
        "input of run {} was sealed with the key \"k1\", which is not in the keyring",
        run.id()
    );
    assert_eq!(error.to_string(), format!("{why} [WL-0003]"));

    let worker = without.worker().register(&any).spawn().unwrap();
    let failure = failure_of(&within.run(run.id())).await;
    assert_eq!((failure.code, failure.message), (FailureCode::Payload, why));
    assert_eq!(calls.load(Ordering::Relaxed), 0, "no handler sees what is sealed");
    worker.drain().await.unwrap();
    let page = without.list(windlass::store::RunFilter::default()).await.unwrap();
    assert_eq!(page.runs.len(), 1, "a list shows what it can");
}

#[tokio::test]
async fn an_input_that_is_not_sealed_is_run_unless_it_must_be() {
    let k1 = Keyring::fresh_line("k1").unwrap();
    for is_required in [false, true] {
        let within = Windlass::memory();
        let (echo, _) = echo();
        let run = within.start(&echo, order()).await.unwrap();
        let sealed = within.clone().sealed(ring(&[&k1]).required(is_required));
        let worker = sealed.worker().register(&echo).spawn().unwrap();
        match is_required {
            false => assert_eq!(ended(&run).await, RunState::Succeeded),
            true => {
                let failure = failure_of(&run).await;
                assert_eq!(failure.code, FailureCode::Payload);
                let end = "is not sealed, and the keyring requires that it is";
                assert!(failure.message.ends_with(end), "{failure}");
            }
        }
        worker.drain().await.unwrap();
    }
}

#[tokio::test]
async fn a_step_that_failed_is_run_again_when_its_run_is_retried() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let never = RetryPolicy::none();
    let charge = Function::<u32, u32>::builder("charge").retry(never.clone());
    let charge = charge
        .run(move |ctx: Ctx<u32>| {
            let (counted, never) = (Arc::clone(&counted), never.clone());
            async move {
                let first = ctx.step("look", async || Ok::<_, TaskError>(7)).await?;
                let charged =
                    ctx.step("charge", async || match counted.fetch_add(1, Ordering::Relaxed) {
                        0 => Err(TaskError::new("no funds on card 4111")),
                        _ => Ok(first),
                    });
                let charged = charged.retry(never).await;
                charged.map_err(|error| TaskError::new(format!("charging order 7: {error}")))
            }
        })
        .unwrap();
    let (k1, k2) = (Keyring::fresh_line("k1").unwrap(), Keyring::fresh_line("k2").unwrap());
    let within = Windlass::memory();
    let windlass = within.clone().sealed(ring(&[&k1, &k2]));
    let worker = windlass.worker().register(&charge).spawn().unwrap();
    let run = windlass.start(&charge, 7).await.unwrap();
    let failure = failure_of(&run).await;
    assert!(failure.message.contains("charging order 7: "), "{failure}");
    assert!(failure.message.contains("no funds on card 4111"), "{failure}");
    let stored = failure_of(&within.run(run.id())).await;
    assert!(stored.message.starts_with("wl-sealed.1.k1."), "{stored}");
    run.retry().await.unwrap();
    assert_eq!(ended(&run).await, RunState::Succeeded);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn a_value_that_was_put_into_another_run_is_refused() {
    let k1 = Keyring::fresh_line("k1").unwrap();
    let within = Windlass::memory();
    let keys = Arc::new(ring(&[&k1]));
    let sealed = Windlass::with_store(Arc::new(SealedStore::new(
        Arc::clone(within.store()),
        Arc::clone(&keys),
    )));
    let (echo, _) = echo();
    let run = sealed.start(&echo, order()).await.unwrap();
    let stolen = within.run(run.id()).get().await.unwrap().input.unwrap();
    // Whoever writes to the store gives the sealed input to a run of their own.
    let known = within.workflows(windlass::store::WorkflowFilter::default()).await.unwrap();
    let theirs = within.start_known(&known.workflows[0], stolen).await.unwrap();
    let error = sealed.run(theirs.id()).get().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Payload);
    assert!(error.to_string().contains("it was changed, or belongs elsewhere"), "{error}");
    let worker = sealed.worker().register(&echo).spawn().unwrap();
    assert_eq!(failure_of(&theirs).await.code, FailureCode::Payload);
    worker.drain().await.unwrap();
}
