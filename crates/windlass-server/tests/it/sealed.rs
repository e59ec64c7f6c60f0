//! A program with keys behind a server that has none.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass::store::sealed::SealedStore;
use windlass::store::{MemoryStore, Store, WorkflowFilter};
use windlass::{
    Cadence, Ctx, Duties, ErrorKind, FailureCode, Function, Keyring, Limit, Payload, RetryPolicy,
    RunHandle, RunState, Schedule, TaskError, Windlass, Workflow,
};

use crate::served::Served;

const PATIENCE: Duration = Duration::from_secs(30);

/// What is in every value, and must not be where there are no keys.
const CANARY: &str = "canary-4111";

struct Setting {
    /// What the server has.
    within: Windlass,
    /// A program with keys.
    sealed: Windlass,
    served: Served,
    /// What happens by itself happens where the store is.
    duties: Duties,
}

fn keys(id: &str) -> Keyring {
    Keyring::parse(&Keyring::fresh_line(id).unwrap()).expect("the line is a key")
}

impl Setting {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let served = Served::new(Arc::clone(&store)).await;
        let sealed = through(&served, keys("k1").required(true));
        let within = Windlass::with_store(store);
        let duties = within.duties(Duration::from_millis(20)).expect("the interval is fine");
        Setting { within, sealed, served, duties }
    }
}

/// A program that has these keys.
fn through(served: &Served, keys: Keyring) -> Windlass {
    let store = SealedStore::new(Arc::new(served.store()), Arc::new(keys));
    Windlass::with_store(Arc::new(store))
}

async fn ended(run: &RunHandle) -> RunState {
    run.wait_timeout(PATIENCE).await.expect("it ends").state
}

#[tokio::test]
async fn a_server_sees_nothing_of_what_programs_with_keys_say() {
    let Setting { within, sealed, served: _served, duties: _duties } = Setting::new().await;
    let twice = Function::new("twice", async |ctx: Ctx<String>| {
        Ok::<_, TaskError>(format!("{0} {0}", ctx.input()))
    });
    let twice = twice.unwrap();
    let of_child = twice.clone();
    let whole = Function::<Value, String>::builder("whole").retry(RetryPolicy::none());
    let whole = whole
        .run(move |ctx: Ctx<Value>| {
            let twice = of_child.clone();
            async move {
                let card = ctx.input()["card"].as_str().unwrap_or_default().to_owned();
                let seen = ctx.step("look", async || Ok::<_, TaskError>(card.clone())).await?;
                let sent: String = ctx.signal("go").await?;
                let both = ctx.run(&twice, seen).await?;
                match sent == both {
                    true => Ok::<_, TaskError>(sent),
                    false => Err(TaskError::new(format!("{sent} is not {both}"))),
                }
            }
        })
        .unwrap();
    let worker = sealed.worker().register(&whole).register(&twice).spawn().unwrap();
    let input = || json!({ "card": CANARY });
    let good = sealed.start(&whole, input()).key("order-1").await.unwrap();
    let again = sealed.start(&whole, input()).key("order-1").await.unwrap();
    assert_eq!(good.id(), again.id(), "the same start is known again");
    good.signal("go", &format!("{CANARY} {CANARY}")).await.unwrap();
    let bad = sealed.start(&whole, input()).await.unwrap();
    bad.signal("go", CANARY).await.unwrap();
    assert_eq!((ended(&good).await, ended(&bad).await), (RunState::Succeeded, RunState::Failed));
    worker.drain().await.unwrap();

    assert_eq!(good.get().await.unwrap().input.unwrap().decode::<Value>().unwrap(), input());
    let failure = bad.tasks().await.unwrap()[0].failure.clone().unwrap();
    assert!(failure.message.contains(CANARY), "{failure}");
    for run in [good, bad] {
        let stored = within.run(run.id());
        let all = format!(
            "{:?} {:?} {:?} {:?}",
            stored.get().await.unwrap(),
            stored.tasks().await.unwrap(),
            stored.steps("whole").await.unwrap(),
            stored.history().await.unwrap(),
        );
        assert!(!all.contains(CANARY) && all.contains("wl-sealed"), "{all}");
    }
}

#[tokio::test]
async fn a_schedule_of_a_program_with_keys_starts_sealed_runs() {
    let Setting { within, sealed, served: _served, duties: _duties } = Setting::new().await;
    let mut echo = Workflow::<String>::builder("echo");
    let task =
        echo.task("echo").run(async |ctx: Ctx<String>| Ok::<_, TaskError>(ctx.input().clone()));
    let echo = echo.build().unwrap();
    let worker = sealed.worker().register(&echo).spawn().unwrap();
    let cadence = Cadence::every(Duration::from_secs(3_600)).unwrap();
    let hourly = Schedule::new("hourly", &echo, CANARY.to_owned(), cadence);
    let record = sealed.schedule(hourly).await.unwrap();
    assert_eq!(record.schedule.input.decode::<String>().unwrap(), CANARY);
    let run = sealed.scheduled("default", "hourly").unwrap().trigger().await.unwrap();
    assert_eq!(ended(&run).await, RunState::Succeeded);
    assert_eq!(run.output(&task).await.unwrap(), CANARY);
    worker.drain().await.unwrap();
    let stored = within.run(run.id()).get().await.unwrap().input.unwrap();
    assert!(stored.as_str().starts_with(r#"{"wl-sealed":"1.k1."#), "{stored:?}");
}

#[tokio::test]
async fn a_server_can_neither_forge_a_value_nor_say_which_fields_it_reads() {
    let Setting { within, sealed, served, duties: _duties } = Setting::new().await;
    let mut order = Workflow::<Value>::builder("order");
    let charge = order.task("charge").retry(RetryPolicy::none()).limit(Limit::per("card", 1));
    charge.run(async |_: Ctx<Value>| Ok::<_, TaskError>(()));
    let order = order.build().unwrap();
    within.store().register(order.definition().clone()).await.unwrap();
    let page = sealed.workflows(WorkflowFilter::default()).await.unwrap();
    let input = Payload::encode(&json!({ "card": CANARY })).unwrap();
    let error = sealed.start_known(&page.workflows[0], input).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("`readable card`"), "{error}");

    let forged = within.start(&order, json!({ "card": "theirs" })).await.unwrap();
    let worker = sealed.worker().register(&order).spawn().unwrap();
    assert_eq!(ended(&forged).await, RunState::Failed);
    let failure = forged.tasks().await.unwrap()[0].failure.clone().unwrap();
    assert_eq!(failure.code, FailureCode::Payload);
    let run = sealed.start(&order, json!({ "card": CANARY })).await.unwrap();
    assert_eq!(ended(&run).await, RunState::Succeeded);
    worker.drain().await.unwrap();

    // Who has another key is told so, and people may look at the run all the same.
    let other = through(&served, keys("k2")).run(run.id()).get().await.unwrap_err();
    assert!(other.to_string().contains("sealed with the key \"k1\""), "{other}");
    let store = SealedStore::new(Arc::new(served.store()), Arc::new(keys("k2"))).for_people();
    let record = Windlass::with_store(Arc::new(store)).run(run.id()).get().await.unwrap();
    assert_eq!(record.state, RunState::Succeeded);
    assert!(record.input.as_ref().unwrap().as_str().contains("wl-sealed"), "{record:?}");
}
