//! What durable functions remember, and the signals they wait for.

use windlass_core::{
    Call, Decision, Fence, Parking, Payload, RunId, RunState, SignalId, StepChange, StepKind,
    StepName, StepRecord, StepResult, StepState, StepWrite, TaskId, TaskIndex, TaskState,
    Timestamp, Wait,
};

use super::bench::{
    Bench, LEASE, TICK, failure, got, hold, is_hinted, json, payload_of, retry_after, seconds,
};
use crate::store::{
    Answer, BATCH_MAX, Claimed, NewSignal, PAGE_MAX, Recording, Refusal, SIGNALS_MAX, StoreError,
    TakeSignal, Which,
};

const LEASE_LOST: Answer = Answer::Refused(Refusal::LeaseLost);
const INVALID: Answer = Answer::Refused(Refusal::Invalid);

fn name(name: &str) -> StepName {
    StepName::new(name).expect("the name is fine")
}

fn write(call: u32, kind: StepKind, step: &str, change: StepChange) -> StepWrite {
    StepWrite { call: Call(call), name: name(step), kind, key: None, change }
}

/// A step with a result.
fn done(call: u32, number: u32, step: &str, value: &str) -> StepWrite {
    let result = StepResult::Value(json(value));
    write(call, StepKind::Step, step, StepChange::Done { number, result })
}

/// A step that failed for good.
fn failed(call: u32, number: u32, step: &str) -> StepWrite {
    let result = StepResult::Failed(failure());
    write(call, StepKind::Step, step, StepChange::Done { number, result })
}

/// A call that waits.
fn open(call: u32, kind: StepKind, step: &str, wait: Wait) -> StepWrite {
    write(call, kind, step, StepChange::Open { failures: 0, failure: None, wait })
}

fn sleep(call: u32, wait: Wait) -> StepWrite {
    open(call, StepKind::Sleep, "sleep", wait)
}

fn record_of(write: &StepWrite, now: Timestamp) -> StepRecord {
    StepRecord::after(None, write, now).expect("nothing is known of it")
}

fn park(steps: Vec<StepWrite>, awaits: bool) -> Decision {
    Decision::Park(Parking { steps, waits: Vec::new(), awaits })
}

async fn record(bench: &Bench<'_>, claimed: &Claimed, steps: Vec<StepWrite>) -> Answer {
    let recordings = vec![Recording { held: hold(claimed), steps }];
    let answers = bench.store.record(recordings).await.expect("recording works");
    assert_eq!(answers.len(), 1);
    answers[0]
}

fn ask(claimed: &Claimed, call: u32, signal: &str, which: Which) -> TakeSignal {
    TakeSignal { held: hold(claimed), call: Call(call), name: name(signal), key: None, which }
}

/// Takes the oldest signal, as the result at the place of its call.
async fn take(
    bench: &Bench<'_>,
    claimed: &Claimed,
    call: u32,
    signal: &str,
) -> Result<Option<Payload>, Refusal> {
    bench.take(ask(claimed, call, signal, Which::Newest)).await
}

fn new_signal(id: u128, run: RunId, signal: &str, value: &str) -> NewSignal {
    NewSignal { id: SignalId::from_random(id), run, name: name(signal), value: json(value) }
}

pub(super) async fn send(bench: &Bench<'_>, id: u128, run: RunId, signal: &str, value: &str) {
    bench.store.signal(new_signal(id, run, signal, value)).await.expect("sending works");
}

async fn steps(bench: &Bench<'_>, claimed: &Claimed) -> Vec<StepRecord> {
    bench.store.list_steps(claimed.task, None, 0x1000).await.expect("listing works")
}

pub(crate) async fn what_was_recorded_is_handed_to_the_next_attempt(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    assert!(first.steps.is_empty());
    let before = (bench.tasks(run).await, bench.events(run).await);
    let two = vec![done(2, 1, "b", "[2]"), failed(1, 2, "a")];
    assert_eq!(record(bench, &first, two.clone()).await, Answer::Accepted);
    let wait = sleep(3, Wait::Until(bench.now().await + seconds(5)));
    assert_eq!(record(bench, &first, vec![wait.clone()]).await, Answer::Accepted);
    assert_eq!((bench.tasks(run).await, bench.events(run).await), before, "nothing else changes");
    let now = bench.now().await;
    let expected: Vec<_> = [&two[1], &two[0], &wait].map(|step| record_of(step, now)).to_vec();
    assert_eq!(steps(bench, &first).await, expected);
    bench.accept(&first, retry_after(seconds(1))).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let second = worker.claim_one().await;
    assert_eq!(second.steps, expected);
    assert_eq!(second.at, bench.now().await);
    bench.succeed(&second).await;
    assert_eq!(steps(bench, &second).await, expected, "they are part of the record");
}

pub(crate) async fn a_result_that_is_recorded_never_changes(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let first = done(1, 1, "a", "1");
    assert_eq!(record(bench, &claimed, vec![first.clone()]).await, Answer::Accepted);
    assert_eq!(record(bench, &claimed, vec![first.clone()]).await, Answer::Accepted, "repeated");
    let others = [
        done(1, 1, "a", "2"),
        done(1, 2, "a", "1"),
        done(1, 1, "b", "1"),
        failed(1, 1, "a"),
        open(1, StepKind::Sleep, "a", Wait::Forever),
    ];
    for other in others {
        let batch = vec![done(2, 2, "b", "2"), other];
        assert_eq!(record(bench, &claimed, batch).await, INVALID);
    }
    let expected = record_of(&first, bench.now().await);
    assert_eq!(steps(bench, &claimed).await, [expected], "whole or not at all");
    // That it waited may be told late, and changes nothing.
    let late = open(1, StepKind::Step, "a", Wait::Forever);
    assert_eq!(record(bench, &claimed, vec![late]).await, Answer::Accepted);
    // A repetition may bring something new along.
    let more = vec![first, done(2, 2, "b", "2")];
    assert_eq!(record(bench, &claimed, more).await, Answer::Accepted);
    assert_eq!(steps(bench, &claimed).await.len(), 2);
}

pub(crate) async fn a_call_that_waits_gets_its_result_later(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let tried = |failures| {
        let wait = Wait::For(seconds(9));
        let change = StepChange::Open { failures, failure: Some(failure()), wait };
        write(1, StepKind::Step, "a", change)
    };
    for failures in [1, 2] {
        assert_eq!(record(bench, &claimed, vec![tried(failures)]).await, Answer::Accepted);
    }
    let due = bench.now().await + seconds(9);
    let (due, children_max) = (Some(due), None);
    let state = StepState::Open { failures: 2, failure: Some(failure()), due, children_max };
    assert_eq!(steps(bench, &claimed).await[0].state, state);
    let other = open(1, StepKind::Step, "b", Wait::Forever);
    assert_eq!(record(bench, &claimed, vec![other]).await, INVALID, "it is another call");
    let result = done(1, 1, "a", "null");
    assert_eq!(record(bench, &claimed, vec![result.clone()]).await, Answer::Accepted);
    assert_eq!(steps(bench, &claimed).await, [record_of(&result, bench.now().await)]);
}

pub(crate) async fn a_wait_that_is_recorded_twice_ends_when_it_was_to_end(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let begin = bench.now().await;
    let waits = vec![
        sleep(1, Wait::For(seconds(9))),
        open(2, StepKind::Signal, "go", Wait::For(seconds(8))),
    ];
    for _ in 0..2 {
        assert_eq!(record(bench, &claimed, waits.clone()).await, Answer::Accepted);
        bench.advance(seconds(2)).await;
    }
    let dues = |steps: Vec<StepRecord>| steps.iter().map(StepRecord::due).collect::<Vec<_>>();
    let expected = [Some(begin + seconds(9)), Some(begin + seconds(8))];
    assert_eq!(dues(steps(bench, &claimed).await), expected);
    // A late repetition of what was before a failure is no news.
    let change = |failures| {
        let wait = Wait::For(seconds(5));
        write(3, StepKind::Step, "a", StepChange::Open { failures, failure: None, wait })
    };
    for failures in [2, 1] {
        assert_eq!(record(bench, &claimed, vec![change(failures)]).await, Answer::Accepted);
    }
    let known = steps(bench, &claimed).await.remove(2).state;
    assert!(matches!(known, StepState::Open { failures: 2, .. }), "{known:?}");
    // Neither does a park begin anew what has begun.
    let begin = begin + seconds(4);
    bench.accept(&claimed, park(waits, false)).await;
    let available_at = bench.task(run, "a").await.available_at;
    assert_eq!(available_at, Some(begin + seconds(4)), "the signal is due first");
}

pub(crate) async fn a_stale_fence_cannot_record_a_step(bench: &Bench<'_>) {
    bench.register("w", "a*3 b<a").await;
    let run = bench.start("w").await;
    let stale = bench.worker().await.claim_one().await;
    bench.advance(LEASE).await;
    assert_eq!(bench.reap().await, 1);
    let step = || vec![done(1, 1, "a", "1")];
    assert_eq!(record(bench, &stale, step()).await, LEASE_LOST, "it is back in its queue");
    let worker = bench.worker().await;
    let current = worker.claim_one().await;
    assert_eq!(record(bench, &stale, step()).await, LEASE_LOST);
    let future = Claimed { fence: current.fence.next(), ..current.clone() };
    assert_eq!(record(bench, &future, step()).await, LEASE_LOST);
    assert_eq!(take(bench, &stale, 1, "a").await, Err(Refusal::LeaseLost));
    assert!(steps(bench, &current).await.is_empty());
    let other = |run: RunId, index| {
        let task = TaskId { run, index: TaskIndex(index) };
        Claimed { task, fence: Fence(1), ..current.clone() }
    };
    let unknown = Answer::Refused(Refusal::UnknownTask);
    assert_eq!(record(bench, &other(bench.run_id(), 0), step()).await, unknown);
    assert_eq!(record(bench, &other(run, 9), step()).await, unknown);
    bench.store.cancel_run(run, None).await.expect("cancelling works");
    let cancelled = Answer::Refused(Refusal::RunCancelled);
    assert_eq!(record(bench, &current, step()).await, cancelled);
    assert_eq!(take(bench, &current, 1, "a").await, Err(Refusal::RunCancelled));
}

pub(crate) async fn recordings_of_many_functions_are_judged_alone(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    bench.start_for("w", "t", 3).await;
    let claimed = bench.worker().await.claim(3).await;
    let limit = bench.store.payload_limit().get();
    let large = StepResult::Value(payload_of(limit + 1));
    let large = write(1, StepKind::Step, "a", StepChange::Done { number: 1, result: large });
    let lost = Claimed { fence: Fence(7), ..claimed[1].clone() };
    let recording = |claimed: &Claimed, steps| Recording { held: hold(claimed), steps };
    let batch = vec![
        recording(&claimed[2], vec![done(1, 1, "a", "1")]),
        recording(&lost, vec![done(1, 1, "a", "1")]),
        recording(&claimed[0], vec![large]),
        recording(&claimed[1], vec![done(1, 1, "a", "2")]),
    ];
    let answers = bench.store.record(batch).await.expect("recording works");
    assert_eq!(answers, [Answer::Accepted, LEASE_LOST, INVALID, Answer::Accepted]);
    let counts = [steps(bench, &claimed[0]), steps(bench, &claimed[1]), steps(bench, &claimed[2])];
    let mut found = Vec::new();
    for count in counts {
        found.push(count.await.len());
    }
    assert_eq!(found, [0, 1, 1]);
    let many = vec![recording(&claimed[0], Vec::new()); BATCH_MAX + 1];
    assert!(matches!(bench.store.record(many).await, Err(StoreError::Conflict(_))));
}

pub(crate) async fn a_step_that_makes_no_sense_takes_nobodys_place(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    bench.start_for("w", "t", 3).await;
    let claimed = bench.worker().await.claim(3).await;
    let lost = Claimed { fence: Fence(7), ..claimed[2].clone() };
    let said = [(&claimed[0], 0, "1"), (&claimed[1], 1, "\"mine\""), (&lost, 1, "2")];
    let batch = said.map(|(claimed, call, value)| Recording {
        held: hold(claimed),
        steps: vec![done(call, 1, "a", value)],
    });
    let answers = bench.store.record(batch.to_vec()).await.expect("recording works");
    assert_eq!(answers, [INVALID, Answer::Accepted, LEASE_LOST]);
    let mine = record_of(&done(1, 1, "a", "\"mine\""), bench.now().await);
    assert_eq!(steps(bench, &claimed[1]).await, [mine]);
    assert!(
        steps(bench, &claimed[0]).await.is_empty() && steps(bench, &claimed[2]).await.is_empty()
    );
}

pub(crate) async fn a_call_may_be_recorded_twice_by_one_batch(bench: &Bench<'_>) {
    bench.register("w", "a*3").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let first = open(1, StepKind::Step, "a", Wait::Forever);
    let recording = |steps| Recording { held: hold(&claimed), steps };
    let batch = vec![
        recording(vec![first.clone()]),
        recording(vec![done(1, 1, "a", "1"), done(2, 2, "b", "2")]),
        recording(vec![done(1, 1, "a", "1")]),
        recording(vec![done(3, 3, "c", "3"), done(3, 3, "c", "4")]),
    ];
    let answers = bench.store.record(batch).await.expect("recording works");
    assert_eq!(answers, [Answer::Accepted, Answer::Accepted, Answer::Accepted, INVALID]);
    let now = bench.now().await;
    let expected = [done(1, 1, "a", "1"), done(2, 2, "b", "2")].map(|one| record_of(&one, now));
    assert_eq!(steps(bench, &claimed).await, expected);
}

pub(crate) async fn steps_are_listed_in_pages(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let all: Vec<_> = (1..=PAGE_MAX as u32 + 5).map(|call| done(call, call, "a", "1")).collect();
    assert_eq!(record(bench, &claimed, all).await, Answer::Accepted);
    let list = async |after, limit| {
        let page = bench.store.list_steps(claimed.task, after, limit).await;
        page.expect("listing works").iter().map(|step| step.call.0).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 2).await, [1, 2]);
    assert_eq!(list(Some(Call(2)), 2).await, [3, 4]);
    assert_eq!(list(None, usize::MAX).await.len(), PAGE_MAX);
    assert_eq!(list(Some(Call(PAGE_MAX as u32)), 10).await.len(), 5);
    let nobody = TaskId { run: bench.run_id(), index: TaskIndex(0) };
    assert_eq!(bench.store.list_steps(nobody, None, 10).await, Ok(Vec::new()));
}

pub(crate) async fn a_function_that_sleeps_is_claimed_again_when_it_is_due(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    bench.advance(seconds(1)).await;
    let steps = vec![done(1, 1, "a", "1"), sleep(2, Wait::For(seconds(5)))];
    bench.accept(&first, park(steps, false)).await;
    let due = bench.now().await + seconds(5);
    let task = bench.task(run, "a").await;
    assert_eq!((task.state, task.attempt, task.worker), (TaskState::Scheduled, 0, None));
    assert_eq!(task.available_at, Some(due));
    bench.advance(seconds(5) - TICK).await;
    assert_eq!(bench.promote().await, 0);
    bench.advance(TICK).await;
    assert_eq!(bench.promote().await, 1);
    let second = worker.claim_one().await;
    assert_eq!((second.fence, second.attempt), (Fence(2), 1), "attempts count anew");
    assert_eq!(second.steps.len(), 2);
    assert_eq!(second.steps[1].due(), Some(due));
    bench.succeed(&second).await;
    let history = "queued started parked queued started succeeded";
    assert_eq!(bench.history(run, "a").await, history);
}

pub(crate) async fn parking_twice_is_accepted_already(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let decision = || park(vec![sleep(1, Wait::For(seconds(5)))], false);
    assert_eq!(bench.finish(&first, decision()).await, Answer::Accepted);
    assert_eq!(bench.finish(&first, decision()).await, Answer::AcceptedAlready);
    bench.advance(seconds(5)).await;
    bench.promote().await;
    assert_eq!(bench.finish(&first, decision()).await, Answer::AcceptedAlready);
    let second = worker.claim_one().await;
    assert_eq!(bench.finish(&first, decision()).await, Answer::AcceptedAlready);
    bench.succeed(&second).await;
    assert_eq!(bench.finish(&first, decision()).await, LEASE_LOST);
}

pub(crate) async fn a_wait_that_was_recorded_before_counts_when_it_is_said_to(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let steps = vec![sleep(1, Wait::For(seconds(5))), sleep(2, Wait::For(seconds(9)))];
    assert_eq!(record(bench, &first, steps).await, Answer::Accepted);
    let begin = bench.now().await;
    let waits = vec![Call(2)];
    let parking = Parking { steps: Vec::new(), waits, awaits: false };
    bench.accept(&first, Decision::Park(parking)).await;
    assert_eq!(bench.task(run, "a").await.available_at, Some(begin + seconds(9)));
}

pub(crate) async fn a_parking_that_waits_for_nothing_is_refused(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let first = vec![done(1, 1, "a", "1")];
    assert_eq!(record(bench, &claimed, first.clone()).await, Answer::Accepted);
    let nothing = park(first, false);
    assert_eq!(bench.finish(&claimed, nothing).await, INVALID);
    let other = park(vec![sleep(1, Wait::For(seconds(1)))], false);
    assert_eq!(bench.finish(&claimed, other).await, INVALID, "call 1 is another one");
    assert_eq!(bench.task(run, "a").await.state, TaskState::Running);
    bench.succeed(&claimed).await;
}

pub(crate) async fn a_signal_wakes_the_function_that_waits_for_it(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    assert_eq!(take(bench, &first, 1, "go").await, Ok(None));
    let wait = open(1, StepKind::Signal, "go", Wait::For(seconds(60)));
    bench.accept(&first, park(vec![wait], true)).await;
    let task = bench.task(run, "a").await;
    assert_eq!((task.state, task.attempt), (TaskState::Waiting, 0));
    assert_eq!(task.available_at, Some(bench.now().await + seconds(60)));
    send(bench, 1, run, "other", "1").await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Waiting);
    let mut hints = bench.store.work_hints();
    assert!(worker.claim(10).await.is_empty());
    hints.take();
    send(bench, 2, run, "go", "[7]").await;
    assert!(is_hinted(&mut hints).await);
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
    let second = worker.claim_one().await;
    assert_eq!(take(bench, &second, 1, "go").await, Ok(Some(json("[7]"))));
    let again = ask(&second, 1, "go", Which::UpTo(SignalId::from_random(2), 1));
    assert_eq!(bench.ask(again).await, got("[7]"), "an answer may be lost");
    assert_eq!(take(bench, &second, 2, "go").await, Ok(None), "it is taken once");
    let expected = StepResult::Value(json("[7]"));
    let state = StepState::Done { number: 1, result: expected };
    assert_eq!(steps(bench, &second).await[0].state, state);
    bench.succeed(&second).await;
    let history = "queued started parked resumed started succeeded";
    assert_eq!(bench.history(run, "a").await, history);
}

pub(crate) async fn a_wait_without_a_timeout_is_never_due(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let wait = open(1, StepKind::Signal, "go", Wait::Forever);
    bench.accept(&first, park(vec![wait], true)).await;
    let task = bench.task(run, "a").await;
    assert_eq!((task.state, task.available_at), (TaskState::Waiting, None));
    bench.advance(seconds(86_400 * 365)).await;
    assert_eq!(bench.promote().await, 0);
    let outlook = bench.store.outlook().await.expect("looking works");
    assert_eq!(outlook.promote_at, None);
    send(bench, 1, run, "go", "null").await;
    let second = bench.worker().await.claim_one().await;
    assert_eq!(take(bench, &second, 1, "go").await, Ok(Some(Payload::default())));
}

pub(crate) async fn a_wait_ends_with_its_timeout(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let wait = open(1, StepKind::Signal, "go", Wait::For(seconds(60)));
    bench.accept(&first, park(vec![wait], true)).await;
    bench.advance(seconds(60)).await;
    assert_eq!(bench.promote().await, 1);
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
    // It comes too late for the wait, and is kept.
    send(bench, 1, run, "go", "1").await;
    let second = worker.claim_one().await;
    assert_eq!(take(bench, &second, 1, "go").await, Ok(Some(json("1"))));
    bench.succeed(&second).await;
    let history = "queued started parked queued started succeeded";
    assert_eq!(bench.history(run, "a").await, history);
}

pub(crate) async fn a_function_does_not_wait_for_a_signal_that_is_there(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    assert_eq!(take(bench, &first, 1, "go").await, Ok(None));
    send(bench, 1, run, "go", "1").await;
    let wait = open(1, StepKind::Signal, "go", Wait::Forever);
    bench.accept(&first, park(vec![wait], true)).await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
    let second = worker.claim_one().await;
    assert_eq!(take(bench, &second, 1, "go").await, Ok(Some(json("1"))));
    bench.succeed(&second).await;
    assert_eq!(bench.history(run, "a").await, "queued started parked resumed started succeeded");
}

pub(crate) async fn signals_are_taken_in_the_order_in_which_they_were_sent(bench: &Bench<'_>) {
    bench.register("w", "a*2 b*2").await;
    let run = bench.start("w").await;
    let other = bench.start("w").await;
    for number in 1..=5 {
        send(bench, number, run, "n", &number.to_string()).await;
    }
    send(bench, 3, run, "n", "3").await;
    send(bench, 9, other, "n", "9").await;
    let worker = bench.worker().await;
    let claimed: Vec<_> = worker.claim(4).await;
    let mine: Vec<_> = claimed.iter().filter(|claimed| claimed.task.run == run).collect();
    let named = |claimed: &Claimed, call, id| {
        ask(claimed, call, "n", Which::UpTo(SignalId::from_random(id), call))
    };
    // All three know of the third.
    let takes = vec![named(mine[0], 1, 3), named(mine[1], 1, 3), named(mine[0], 2, 3)];
    let taken = bench.store.take_signals(takes).await.expect("asking works");
    assert_eq!(taken, [got("1"), got("2"), got("3")]);
    let value = |text: &str| Ok(Some(json(text)));
    assert_eq!(take(bench, mine[1], 2, "n").await, value("4"));
    assert_eq!(take(bench, mine[1], 3, "n").await, value("5"));
    assert_eq!(take(bench, mine[1], 4, "n").await, Ok(None));
}

pub(crate) async fn a_signal_to_a_run_that_ended_or_never_was_is_an_error(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    send(bench, 1, run, "n", "1").await;
    let claimed = bench.worker().await.claim_one().await;
    bench.succeed(&claimed).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
    send(bench, 1, run, "n", "1").await;
    let late = bench.store.signal(new_signal(2, run, "n", "2")).await;
    let text = format!("run {run} is succeeded, only a running run can be signalled");
    assert_eq!(late, Err(StoreError::Conflict(text)));
    let nobody = bench.run_id();
    let lost = bench.store.signal(new_signal(3, nobody, "n", "3")).await;
    assert_eq!(lost, Err(StoreError::NotFound(format!("run {nobody}"))));
    let run = bench.start("w").await;
    let value = payload_of(bench.store.payload_limit().get() + 1);
    let large = NewSignal { value, ..new_signal(4, run, "n", "1") };
    let large = bench.store.signal(large).await;
    assert!(matches!(large, Err(StoreError::Conflict(text)) if text.contains("signal \"n\"")));
}

pub(crate) async fn a_run_keeps_so_many_signals_that_nobody_took(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    for number in 0..SIGNALS_MAX as u128 {
        send(bench, number, run, "n", "1").await;
    }
    let more = new_signal(SIGNALS_MAX as u128, run, "n", "1");
    let refused = bench.store.signal(more.clone()).await;
    assert!(matches!(refused, Err(StoreError::Conflict(text)) if text.contains("nobody took")));
    let claimed = bench.worker().await.claim_one().await;
    assert_eq!(take(bench, &claimed, 1, "n").await, Ok(Some(json("1"))));
    bench.store.signal(more).await.expect("there is room");
}

pub(crate) async fn a_function_that_failed_goes_on_from_its_last_failed_step(bench: &Bench<'_>) {
    bench.register("w", "a b<a?finished").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let known = vec![
        failed(1, 1, "optional"),
        done(2, 2, "kept", "2"),
        failed(3, 4, "last"),
        done(4, 3, "beside", "3"),
        done(5, 5, "behind", "5"),
        sleep(6, Wait::Forever),
    ];
    assert_eq!(record(bench, &first, known).await, Answer::Accepted);
    bench.accept(&first, Decision::Fail(failure())).await;
    let after = worker.claim_one().await;
    assert_eq!(record(bench, &after, vec![done(1, 1, "x", "1")]).await, Answer::Accepted);
    bench.succeed(&after).await;
    bench.store.retry_run(run, 1).await.expect("retrying works");
    let second = worker.claim_one().await;
    let calls: Vec<u32> = second.steps.iter().map(|step| step.call.0).collect();
    assert_eq!(calls, [1, 2, 4]);
    bench.succeed(&second).await;
    let anew = worker.claim_one().await;
    assert!(anew.steps.is_empty(), "what depends on it begins anew");
    bench.succeed(&anew).await;
    assert_eq!(bench.run_state(run).await, RunState::Succeeded);
}

pub(crate) async fn a_function_that_failed_by_itself_keeps_all_its_steps(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let known = vec![failed(1, 1, "handled"), done(2, 2, "b", "2")];
    assert_eq!(record(bench, &first, known).await, Answer::Accepted);
    let own = windlass_core::Failure::new(windlass_core::FailureCode::Panic, "of its own");
    bench.accept(&first, Decision::Fail(own)).await;
    bench.store.retry_run(run, 1).await.expect("retrying works");
    assert_eq!(worker.claim_one().await.steps.len(), 2);
}

pub(crate) async fn a_call_that_nobody_waits_for_any_more_is_forgotten(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let signal = |call, name| open(call, StepKind::Signal, name, Wait::Forever);
    bench.accept(&first, park(vec![signal(1, "stop"), signal(2, "go")], true)).await;
    send(bench, 1, run, "go", "1").await;
    let second = worker.claim_one().await;
    assert_eq!(take(bench, &second, 2, "go").await, Ok(Some(json("1"))));
    bench.accept(&second, park(vec![signal(3, "more")], true)).await;
    let calls: Vec<u32> = steps(bench, &second).await.iter().map(|step| step.call.0).collect();
    assert_eq!(calls, [2, 3]);
    send(bench, 2, run, "stop", "1").await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Waiting);
    send(bench, 3, run, "more", "1").await;
    assert_eq!(bench.task(run, "a").await.state, TaskState::Ready);
}

pub(crate) async fn a_cancelled_function_waits_no_more(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let wait = open(1, StepKind::Signal, "go", Wait::For(seconds(5)));
    bench.accept(&first, park(vec![wait], true)).await;
    bench.store.cancel_run(run, None).await.expect("cancelling works");
    assert_eq!(bench.task(run, "a").await.state, TaskState::Cancelled);
    bench.advance(seconds(5)).await;
    assert_eq!(bench.promote().await, 0);
    assert_eq!(bench.history(run, "a").await, "queued started parked cancelled");
}
