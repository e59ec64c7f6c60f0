//! Handlers called as a worker calls them, on claims made by hand.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use windlass_core::payload::PAYLOAD_BYTES_DEFAULT;
use windlass_core::{
    Failure, FailureCode, Fence, Outcome, Payload, RetryPolicy, RunId, TaskId, TaskName, TaskState,
    Tenant, Timestamp, Trigger,
};

use super::{Task, Workflow, WorkflowBuilder};
use crate::context::{Attempt, Ctx};
use crate::store::{Claimed, ParentEnd};
use crate::{ErrorKind, TaskError};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    cents: u64,
}

fn json(value: impl Serialize) -> Payload {
    Payload::encode(&value).unwrap()
}

fn returned(value: impl Serialize) -> Outcome {
    Outcome::Returned(json(value))
}

fn payload_failure(message: &str) -> Outcome {
    Outcome::Failed(Failure::new(FailureCode::Payload, message).permanent())
}

/// A claim of `task` as a store would answer it, with input `7`.
fn claim<I, O>(workflow: &Workflow<I>, task: &Task<O>) -> Claimed {
    Claimed {
        task: TaskId { run: RunId::from_parts(Timestamp::from_micros(0), 1), index: task.index },
        fence: Fence(3),
        attempt: 2,
        workflow: workflow.name().clone(),
        version: workflow.version(),
        spec: Arc::clone(workflow.definition().task(task.index)),
        tenant: Tenant::new("acme").unwrap(),
        input: json(7),
        parents: Vec::new(),
        failures: Vec::new(),
        checkpoint: None,
        last_failure: None,
        steps: Vec::new(),
        at: Timestamp::from_micros(0),
        round: 1,
        afresh: 0,
        trace: None,
    }
}

fn succeeded<O>(parent: &Task<O>, output: impl Serialize) -> ParentEnd {
    let (state, output) = (TaskState::Succeeded, Some(json(output)));
    ParentEnd { index: parent.index, state, output }
}

fn ended<O>(parent: &Task<O>, state: TaskState) -> ParentEnd {
    ParentEnd { index: parent.index, state, output: None }
}

async fn run<I>(workflow: &Workflow<I>, claimed: Claimed) -> Outcome {
    let handler = workflow.registration.handlers[claimed.task.index.as_usize()].clone();
    let handler = handler.expect("not a sleep");
    let (cancelled, draining) = (CancellationToken::new(), CancellationToken::new());
    handler(Arc::new(Attempt::new(claimed, cancelled, draining))).await
}

async fn run_after<I, O>(
    workflow: &Workflow<I>,
    task: &Task<O>,
    parents: impl Into<Vec<ParentEnd>>,
) -> Outcome {
    run(workflow, Claimed { parents: parents.into(), ..claim(workflow, task) }).await
}

/// Adds a task whose output is of this type and that is never run here.
fn source<O>(builder: &mut WorkflowBuilder<u64>, name: &str) -> Task<O>
where
    O: Serialize + DeserializeOwned + 'static,
{
    builder.task(name).run(async |_| Err("not run here"))
}

async fn charge(ctx: Ctx<u64>) -> Result<Receipt, TaskError> {
    Ok(Receipt { cents: *ctx.input() })
}

async fn ship(ctx: Ctx<u64>, receipt: Receipt) -> anyhow::Result<String> {
    Ok(format!("{} for {}", ctx.task(), receipt.cents))
}

#[tokio::test]
async fn a_handler_is_a_function_or_a_closure_with_or_without_captures() {
    let mut builder = Workflow::<u64>::builder("order");
    let function = builder.task("function").run(charge);
    let closure = builder.task("closure").run(async |ctx: Ctx<u64>| {
        tokio::task::yield_now().await;
        Ok::<_, TaskError>(*ctx.input() + 1)
    });
    let rate = Arc::new(3);
    let captures = builder.task("captures").run(move |ctx| {
        let rate = Arc::clone(&rate);
        async move { Ok::<_, String>(*ctx.input() * *rate) }
    });
    let reading = builder.task("reading").reads(&function).run(ship);
    let workflow = builder.build().unwrap();

    let cents = Receipt { cents: 7 };
    assert_eq!(run_after(&workflow, &function, []).await, returned(&cents));
    assert_eq!(run_after(&workflow, &closure, []).await, returned(8));
    assert_eq!(run_after(&workflow, &captures, []).await, returned(21));
    let parents = [succeeded(&function, &cents)];
    assert_eq!(run_after(&workflow, &reading, parents).await, returned("reading for 7"));
}

#[tokio::test]
async fn a_tuple_of_eight_reads_arrives_in_its_own_order() {
    let mut builder = Workflow::<u64>::builder("order");
    let text = source::<String>(&mut builder, "text");
    let number = source::<u32>(&mut builder, "number");
    let many: Vec<Task<u8>> = (0..3).map(|n| source(&mut builder, &format!("many-{n}"))).collect();
    let night = builder.sleep("night", std::time::Duration::from_secs(1)).add();
    let all = builder
        .task("all")
        .reads((
            &number,
            &many,
            text.optional(),
            &night,
            &text,
            &many[..2],
            &number.optional(),
            (&number, &text),
        ))
        .run(async |_, (a, b, c, (), e, f, g, h)| {
            Ok::<_, TaskError>((a, b, c, e, f, g, h) as Everything)
        });
    type Everything = (u32, Vec<u8>, Option<String>, String, Vec<u8>, Option<u32>, (u32, String));
    let workflow = builder.build().unwrap();

    let parents = [
        succeeded(&text, "t"),
        succeeded(&number, 5),
        succeeded(&many[0], 10),
        succeeded(&many[1], 11),
        succeeded(&many[2], 12),
        ended(&night, TaskState::Succeeded),
    ];
    let expected = (5, [10, 11, 12], Some("t"), "t", [10, 11], Some(5), (5, "t"));
    assert_eq!(run_after(&workflow, &all, parents).await, returned(expected));
}

#[tokio::test]
async fn an_optional_parent_that_did_not_succeed_is_none() {
    let mut builder = Workflow::<u64>::builder("order");
    let left = source::<u32>(&mut builder, "left");
    let right = source::<u32>(&mut builder, "right");
    let pair = builder
        .task("pair")
        .reads((&left.optional(), &right.optional()))
        .trigger(Trigger::AllFinished)
        .run(async |_, pair: (Option<u32>, Option<u32>)| Ok::<_, TaskError>(pair));
    let handles = [left.optional(), right.optional()];
    let list = builder
        .task("list")
        .reads(&handles[..])
        .trigger(Trigger::AllFinished)
        .run(async |_, list: Vec<Option<u32>>| Ok::<_, TaskError>(list));
    let workflow = builder.build().unwrap();

    for state in [TaskState::Skipped, TaskState::Failed, TaskState::Cancelled] {
        let parents = [ended(&left, state), succeeded(&right, 2)];
        let expected = returned((None::<u32>, Some(2)));
        assert_eq!(run_after(&workflow, &pair, parents.clone()).await, expected);
        assert_eq!(run_after(&workflow, &list, parents).await, expected);
    }
}

#[tokio::test]
async fn a_false_condition_keeps_the_handler_from_being_called() {
    let mut builder = Workflow::<u64>::builder("order");
    let receipt = source::<Receipt>(&mut builder, "charge");
    let never = async |_| -> Result<(), TaskError> { panic!("the condition is false") };
    let small = builder.task("small").when(|ctx| *ctx.input() > 7).run(never);
    let paid = builder
        .task("paid")
        .when(|ctx| *ctx.input() == 7)
        .reads(&receipt)
        .when(|_, receipt| receipt.cents > 0)
        .run(async |_, receipt: Receipt| Ok::<_, TaskError>(receipt.cents));
    let other_input = builder
        .task("other input")
        .when(|ctx| *ctx.input() == 8)
        .reads(&receipt)
        .when(|_, receipt| receipt.cents > 0)
        .run(async |_, _| -> Result<(), TaskError> { panic!("the condition is false") });
    let workflow = builder.build().unwrap();

    let skipped = Outcome::ConditionFalse;
    assert_eq!(run_after(&workflow, &small, []).await, skipped);
    let parents = |cents| [succeeded(&receipt, Receipt { cents })];
    assert_eq!(run_after(&workflow, &paid, parents(0)).await, skipped);
    assert_eq!(run_after(&workflow, &paid, parents(5)).await, returned(5));
    assert_eq!(run_after(&workflow, &other_input, parents(5)).await, skipped);
}

#[tokio::test]
async fn the_on_failure_handler_gets_what_failed() {
    let mut builder = Workflow::<u64>::builder("order");
    source::<()>(&mut builder, "charge");
    let apologise = builder.on_failure("apologise").retry(RetryPolicy::none()).queue("mail").run(
        async |ctx: Ctx<u64>, failures: Vec<(TaskName, Failure)>| {
            let (task, failure) = &failures[0];
            Ok::<_, TaskError>(format!("order {}: {task}: {failure}", ctx.input()))
        },
    );
    let workflow = builder.build().unwrap();

    assert_eq!(workflow.definition().on_failure(), Some(apologise.index));
    let name = TaskName::new("charge").unwrap();
    let failures = vec![(name, Failure::new(FailureCode::Timeout, "after 5s"))];
    let claimed = Claimed { failures, ..claim(&workflow, &apologise) };
    let outcome = run(&workflow, claimed).await;
    assert_eq!(outcome, returned("order 7: charge: timeout: after 5s"));
}

#[tokio::test]
async fn a_handlers_error_becomes_the_failure_with_its_code() {
    use anyhow::Context;

    let mut builder = Workflow::<u64>::builder("order");
    let task = builder.task("charge").run(async |_| -> anyhow::Result<()> {
        let declined = TaskError::new("card declined").code("card_declined").permanent();
        Err(declined).context("charging order 7")
    });
    let text = builder.task("text").run(async |_| Err::<(), _>("out of paper"));
    let workflow = builder.build().unwrap();

    let code = FailureCode::Custom("card_declined".into());
    let failure = Failure::new(code, "charging order 7: card declined").permanent();
    assert_eq!(run_after(&workflow, &task, []).await, Outcome::Failed(failure));
    let failure = Failure::new(FailureCode::Error, "out of paper");
    assert_eq!(run_after(&workflow, &text, []).await, Outcome::Failed(failure));
}

#[tokio::test]
async fn an_input_of_another_type_fails_for_good_and_names_the_task() {
    let mut builder = Workflow::<u64>::builder("order");
    let task = builder.task("charge").run(charge);
    let workflow = builder.build().unwrap();

    let claimed = Claimed { input: json("seven"), ..claim(&workflow, &task) };
    let message = "input of task \"charge\" cannot be read as u64: \
        invalid type: string \"seven\", expected u64 at line 1 column 7";
    assert_eq!(run(&workflow, claimed).await, payload_failure(message));
}

#[tokio::test]
async fn an_output_of_another_type_fails_its_reader_for_good_and_names_both() {
    let mut builder = Workflow::<u64>::builder("order");
    let count = source::<u32>(&mut builder, "count");
    let required = builder.task("ship").reads(&count).run(async |_, n| Ok::<_, TaskError>(n));
    let optional =
        builder.task("ship-2").reads(count.optional()).run(async |_, n| Ok::<_, TaskError>(n));
    let workflow = builder.build().unwrap();

    for (task, outcome) in [
        ("ship", run_after(&workflow, &required, [succeeded(&count, "x")]).await),
        ("ship-2", run_after(&workflow, &optional, [succeeded(&count, "x")]).await),
    ] {
        let message = format!(
            "output of task \"count\", read by task {task:?}, cannot be read as u32: \
             invalid type: string \"x\", expected u32 at line 1 column 3"
        );
        assert_eq!(outcome, payload_failure(&message));
    }
}

#[tokio::test]
async fn a_parent_that_the_store_does_not_hand_over_is_a_failure_and_not_a_panic() {
    let mut builder = Workflow::<u64>::builder("order");
    let count = source::<u32>(&mut builder, "count");
    let required = builder.task("ship").reads(&count).run(async |_, n| Ok::<_, TaskError>(n));
    let optional =
        builder.task("pack").reads(count.optional()).run(async |_, n| Ok::<_, TaskError>(n));
    let workflow = builder.build().unwrap();

    let missing = "output of task \"count\", read by task \"ship\", is missing";
    assert_eq!(run_after(&workflow, &required, []).await, payload_failure(missing));
    let failed = [ended(&count, TaskState::Failed)];
    assert_eq!(run_after(&workflow, &required, failed).await, payload_failure(missing));
    let missing = "output of task \"count\", read by task \"pack\", is missing";
    assert_eq!(run_after(&workflow, &optional, []).await, payload_failure(missing));
}

#[tokio::test]
async fn an_output_that_cannot_be_stored_fails_for_good() {
    let mut builder = Workflow::<u64>::builder("order");
    let large =
        builder.task("large").run(async |_| Ok::<_, TaskError>("x".repeat(PAYLOAD_BYTES_DEFAULT)));
    let keys = builder.task("keys").run(async |_| {
        Ok::<_, TaskError>(std::collections::HashMap::from([((1, 2), "a".to_owned())]))
    });
    let workflow = builder.build().unwrap();

    let message = "output of task \"large\" has 1048578 bytes, the payload_limit is 1048576";
    assert_eq!(run_after(&workflow, &large, []).await, payload_failure(message));
    let message = "output of task \"keys\" cannot be written as JSON: key must be a string";
    assert_eq!(run_after(&workflow, &keys, []).await, payload_failure(message));
}

#[tokio::test]
async fn nothing_is_decoded_before_the_future_is_polled() {
    let mut builder = Workflow::<u64>::builder("order");
    let task =
        builder.task("charge").when(|_| panic!("the condition belongs to the attempt")).run(charge);
    let workflow = builder.build().unwrap();

    let handler = workflow.registration.handlers[0].clone().expect("not a sleep");
    let (cancelled, draining) = (CancellationToken::new(), CancellationToken::new());
    let attempt = Attempt::new(claim(&workflow, &task), cancelled, draining);
    drop(handler(Arc::new(attempt)));
}

fn context(attempt: u32) -> (Ctx<u64>, Arc<Attempt>, CancellationToken, CancellationToken) {
    let mut builder = Workflow::<u64>::builder("order").version(4);
    let task = builder.task("charge").retry(RetryPolicy::exponential().attempts(3)).run(charge);
    let workflow = builder.build().unwrap();
    let claimed = Claimed { attempt, ..claim(&workflow, &task) };
    let (cancelled, draining) = (CancellationToken::new(), CancellationToken::new());
    let attempt = Arc::new(Attempt::new(claimed, cancelled.clone(), draining.clone()));
    (Ctx::new(Arc::clone(&attempt), 7), attempt, cancelled, draining)
}

#[test]
fn a_context_tells_the_facts_of_its_attempt() {
    let (ctx, ..) = context(2);
    assert_eq!(*ctx.input(), 7);
    assert_eq!(ctx.run_id(), RunId::from_parts(Timestamp::from_micros(0), 1));
    assert_eq!(ctx.workflow().as_str(), "order");
    assert_eq!(ctx.version().get(), 4);
    assert_eq!(ctx.task().as_str(), "charge");
    assert_eq!(ctx.tenant().as_str(), "acme");
    assert_eq!(ctx.fence(), Fence(3));
    assert_eq!((ctx.attempt(), ctx.max_attempts(), ctx.is_last_attempt()), (2, 3, false));
    assert!(context(3).0.is_last_attempt());
}

#[tokio::test]
async fn a_context_hears_of_cancelling_and_of_draining_apart() {
    let (ctx, _, cancelled, draining) = context(1);
    assert!(!ctx.is_draining() && !ctx.is_cancelled());
    draining.cancel();
    ctx.draining().await;
    assert!(ctx.is_draining() && !ctx.is_cancelled());
    cancelled.cancel();
    ctx.clone().cancelled().await;
    assert!(ctx.is_cancelled());
}

#[test]
fn the_last_note_of_progress_is_taken_once() {
    let (ctx, attempt, ..) = context(1);
    assert_eq!(attempt.take_progress(), None);
    ctx.progress("half").unwrap();
    ctx.progress(&0.75).unwrap();
    assert_eq!(attempt.take_progress(), Some(json(0.75)));
    assert_eq!(attempt.take_progress(), None);

    let error = ctx.progress(&"x".repeat(PAYLOAD_BYTES_DEFAULT)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Payload);
    assert_eq!(
        error.to_string(),
        "progress of task \"charge\" has 1048578 bytes, the payload_limit is 1048576 [WL-0003]"
    );
}

#[test]
fn a_name_that_belongs_to_what_undoes_runs_is_refused() {
    let mut workflow = Workflow::<()>::builder("order~undo");
    workflow.task("a").run(async |_| Ok::<_, TaskError>(()));
    let error = workflow.build().expect_err("the name is taken");
    assert!(error.to_string().contains("\"order~undo\" ends with \"~undo\""), "{error}");
}
