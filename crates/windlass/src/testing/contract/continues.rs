//! Functions that begin afresh, as the same run.

use windlass_core::{
    Call, Decision, Parking, RunState, SignalId, StepChange, StepKind, StepName, StepResult,
    StepWrite, TaskState, Wait,
};

use super::bench::{
    Bench, failure, got, hold, json, key, payload_of, retry_after, seconds, success,
};
use crate::store::{Answer, Claimed, NewSignal, Recording, Refusal, TakeSignal, Which};

const INVALID: Answer = Answer::Refused(Refusal::Invalid);

fn afresh(input: &str) -> Decision {
    Decision::Continue(json(input))
}

fn step(call: u32, kind: StepKind, change: StepChange) -> StepWrite {
    let name = StepName::new("a").expect("the name is fine");
    StepWrite { call: Call(call), name, kind, key: None, change }
}

async fn record(bench: &Bench<'_>, claimed: &Claimed, steps: Vec<StepWrite>) {
    let recordings = vec![Recording { held: hold(claimed), steps }];
    let answers = bench.store.record(recordings).await.expect("recording works");
    assert_eq!(answers, [Answer::Accepted]);
}

fn done(call: u32, result: StepResult) -> StepWrite {
    step(call, StepKind::Step, StepChange::Done { number: call, result })
}

pub(crate) async fn a_function_that_begins_afresh_has_its_new_input_and_knows_nothing_else(
    bench: &Bench<'_>,
) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.accept(&first, retry_after(seconds(1))).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let first = worker.claim_one().await;
    record(bench, &first, vec![done(1, StepResult::Value(json("1")))]).await;
    bench.checkpoint(&first, "7").await;
    let id = SignalId::from_random(1);
    let name = StepName::new("s").expect("the name is fine");
    let signal = NewSignal { id, run, name, value: json("5") };
    bench.store.signal(signal).await.expect("it runs");
    bench.accept(&first, afresh("[2]")).await;
    assert_eq!(bench.run_state(run).await, RunState::Running);
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
    let second = worker.claim_one().await;
    assert_eq!(second.input, json("[2]"));
    assert_eq!((second.steps.len(), second.checkpoint.clone()), (0, None));
    assert_eq!((second.attempt, second.round), (1, 2), "attempts count anew");
    assert!(second.fence > first.fence);
    assert_eq!(bench.run(run).await.input, Some(bench.new_run("w").input), "as it was started");
    let listed = bench.store.list_steps(second.task, None, 9).await.expect("listing works");
    assert!(listed.is_empty(), "{listed:?}");
    bench.accept(&second, afresh("[3]")).await;
    let third = worker.claim_one().await;
    assert_eq!((third.input.clone(), third.round), (json("[3]"), 3));
    let name = StepName::new("s").expect("the name is fine");
    let (held, which) = (hold(&third), Which::UpTo(id, 1));
    let take = TakeSignal { held, call: Call(1), name, key: None, which };
    let taken = bench.store.take_signals(vec![take]).await.expect("asking works");
    assert_eq!(taken, [got("5")], "signals are the run's");
    bench.succeed(&third).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn a_beginning_afresh_is_applied_once_and_only_under_the_fence(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.accept(&first, afresh("[2]")).await;
    assert_eq!(bench.finish(&first, afresh("[2]")).await, Answer::AcceptedAlready);
    let second = worker.claim_one().await;
    assert_eq!(second.round, 2);
    bench.accept(&second, afresh("[3]")).await;
    let third = worker.claim_one().await;
    assert_eq!(bench.finish(&first, afresh("[9]")).await, Answer::Refused(Refusal::LeaseLost));
    bench.succeed(&third).await;
    assert_eq!(third.input, json("[3]"));
}

pub(crate) async fn only_a_workflow_of_one_task_can_begin_afresh(bench: &Bench<'_>) {
    bench.register("w", "a b<a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.finish(&claimed, afresh("[2]")).await, INVALID);
    bench.succeed(&claimed).await;
    bench.succeed(&worker.claim_one().await).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded, "it had kept its lease");
    bench.register("one", "a").await;
    bench.start("one").await;
    let claimed = worker.claim_one().await;
    let limit = bench.store.payload_limit().get();
    let large = Decision::Continue(payload_of(limit + 1));
    assert_eq!(bench.finish(&claimed, large).await, INVALID);
    bench.succeed(&claimed).await;
}

pub(crate) async fn the_input_of_a_function_that_began_afresh_outlives_failures_and_rests(
    bench: &Bench<'_>,
) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, afresh("[2]")).await;
    let claimed = worker.claim_one().await;
    let wait = Wait::For(seconds(1));
    let sleep = step(1, StepKind::Sleep, StepChange::Open { failures: 0, failure: None, wait });
    let parking = Parking { steps: vec![sleep], waits: Vec::new(), awaits: false };
    bench.accept(&claimed, Decision::Park(parking)).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let rested = worker.claim_one().await;
    assert_eq!((rested.input.clone(), rested.steps.len()), (json("[2]"), 1));
    // A run that failed with a step goes on from that step.
    record(bench, &rested, vec![done(2, StepResult::Failed(failure()))]).await;
    bench.fail(&rested).await;
    assert_eq!(bench.store.retry_run(run, 2).await, Ok(3));
    let retried = worker.claim_one().await;
    assert_eq!((retried.input.clone(), retried.round), (json("[2]"), 3));
    bench.accept(&retried, success()).await;
}

pub(crate) async fn a_start_is_known_again_after_its_run_began_afresh(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let mut start = bench.new_run("w");
    start.key = key("k");
    let run = bench.start_run(start.clone()).await;
    let worker = bench.worker().await;
    bench.accept(&worker.claim_one().await, afresh("[2]")).await;
    let again = bench.try_start(start).await.expect("it is the same start");
    assert_eq!((again.run, again.is_new), (run, false));
    bench.succeed(&worker.claim_one().await).await;
}
