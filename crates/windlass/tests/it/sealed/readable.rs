//! Which fields of sealed inputs stay readable, and who decides that.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::time::Duration;

use serde_json::{Value, json};
use windlass::store::{NewRun, NewSchedule, ScheduleKey, WorkflowFilter, WorkflowRecord};
use windlass::{
    Cadence, Ctx, Error, ErrorKind, Keyring, Limit, Payload, RunHandle, TaskError, Windlass,
    Workflow,
};
use windlass_core::schedule::Timing;

/// A workflow of which someone says that a limit of it reads this field.
fn by(field: &str) -> Workflow<Value> {
    let mut order = Workflow::<Value>::builder("order");
    let charge = order.task("charge").limit(Limit::per(field, 1));
    charge.run(async |_: Ctx<Value>| Ok::<_, TaskError>(()));
    order.build().expect("the workflow is valid")
}

fn input() -> Value {
    json!({ "customer": { "id": "c-7" }, "card": "4111" })
}

fn payload() -> Payload {
    Payload::encode(&input()).expect("it has a form in JSON")
}

fn keys() -> Keyring {
    Keyring::parse(&Keyring::fresh_line("k1").unwrap()).expect("the line is a key")
}

/// Makes it known without any keys, as whoever can write to the store may.
async fn known(within: &Windlass, workflow: &Workflow<Value>) -> WorkflowRecord {
    within.store().register(workflow.definition().clone()).await.unwrap();
    let page = within.workflows(WorkflowFilter::default()).await.unwrap();
    page.workflows.into_iter().next().expect("it is known")
}

fn by_name(windlass: &Windlass) -> NewRun {
    NewRun {
        id: windlass.new_run_id(),
        workflow: windlass::WorkflowName::new("order").unwrap(),
        version: windlass::Version::FIRST,
        tenant: windlass::Tenant::default(),
        input: payload(),
        key: None,
        delay: Duration::ZERO,
        priority: windlass_core::Priority::default(),
        metadata: std::collections::BTreeMap::new(),
    }
}

fn scheduled() -> NewSchedule {
    let name = windlass_core::ScheduleName::new("nightly").unwrap();
    NewSchedule {
        key: ScheduleKey { tenant: windlass::Tenant::default(), name },
        workflow: windlass::WorkflowName::new("order").unwrap(),
        version: windlass::Version::FIRST,
        input: payload(),
        priority: windlass_core::Priority::default(),
        timing: Timing::new(Cadence::every(Duration::from_secs(3_600)).unwrap()),
        owner: None,
    }
}

/// What the store has of the input of a run.
async fn stored(within: &Windlass, run: &RunHandle) -> Value {
    let record = within.run(run.id()).get().await.unwrap();
    let mut stored: Value = record.input.as_ref().unwrap().decode().unwrap();
    let sealed = stored.as_object_mut().and_then(|members| members.remove("wl-sealed"));
    assert!(sealed.is_some(), "it is sealed");
    stored
}

fn assert_refused(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let said = error.to_string();
    for part in [
        "workflow \"order\" of version 1",
        "the field \"card\" of its input",
        "register the workflow in this program",
        "add the line `readable card` to the payload keys",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[tokio::test]
async fn a_definition_of_the_store_does_not_say_which_fields_stay_readable() {
    let within = Windlass::memory();
    let theirs = known(&within, &by("card")).await;
    let sealed = within.clone().sealed(keys());
    assert_refused(&sealed.start_known(&theirs, payload()).await.unwrap_err());
    assert_refused(&sealed.start_new(by_name(&sealed), true).await.unwrap_err());
    let answers = sealed.start_all_new(vec![by_name(&sealed)]).await.unwrap();
    assert_refused(&Error::from(answers.into_iter().next().unwrap().unwrap_err()));
    assert_refused(&sealed.store().put_schedule(scheduled()).await.unwrap_err().into());
    // Of two records of the same workflow neither is taken for what the program itself has built.
    let again = known(&within, &by("card")).await;
    let (one, two) =
        (sealed.start_known(&theirs, payload()), sealed.start_known(&again, payload()));
    assert_refused(&one.await.unwrap_err());
    assert_refused(&two.await.unwrap_err());
    let page = within.list(windlass::store::RunFilter::default()).await.unwrap();
    assert_eq!(page.runs, [], "nothing was started");
}

#[tokio::test]
async fn a_program_that_registers_the_workflow_says_it_itself() {
    let within = Windlass::memory();
    let order = by("customer.id");
    // It was registered before there were keys as well.
    within.start(&order, input()).await.unwrap();
    let sealed = within.clone().sealed(keys());
    let run = sealed.start(&order, input()).await.unwrap();
    assert_eq!(stored(&within, &run).await, json!({ "customer": { "id": "c-7" } }));
    // Whatever the store says of it later.
    let theirs = known(&within, &by("card")).await;
    let run = sealed.start_known(&theirs, payload()).await.unwrap();
    assert_eq!(stored(&within, &run).await, json!({ "customer": { "id": "c-7" } }));
    let worker = within.clone().sealed(keys());
    let working = worker.worker().register(&order).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let run = worker.start_known(&theirs, payload()).await.unwrap();
    assert_eq!(stored(&within, &run).await, json!({ "customer": { "id": "c-7" } }));
    working.drain().await.unwrap();
}

#[tokio::test]
async fn keys_say_which_fields_the_store_may_ask_for() {
    let within = Windlass::memory();
    let theirs = known(&within, &by("customer.id")).await;
    let sealed = within.clone().sealed(keys().readable("customer.id").unwrap());
    let run = sealed.start_known(&theirs, payload()).await.unwrap();
    assert_eq!(stored(&within, &run).await, json!({ "customer": { "id": "c-7" } }));
    let record = sealed.store().put_schedule(scheduled()).await.unwrap();
    assert_eq!(record.schedule.input, payload());
    // Not what it asks for besides.
    let other = Windlass::memory();
    let theirs = known(&other, &by("card")).await;
    let sealed = other.clone().sealed(keys().readable("customer.id").unwrap());
    assert_refused(&sealed.start_known(&theirs, payload()).await.unwrap_err());
}
