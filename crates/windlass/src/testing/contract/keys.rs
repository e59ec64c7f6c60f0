//! Signals to keys, for whoever waits for them.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::definition::TaskDraft;
use windlass_core::retry::WAIT_MAX;
use windlass_core::{
    Call, Decision, DefinitionDraft, Limit, Parking, Payload, RunId, SignalId, SignalKey,
    StepChange, StepKind, StepName, StepRecord, StepResult, StepWrite, TaskKind, TaskState, Tenant,
    Wait,
};

use super::bench::{
    Bench, LEASE, TICK, Worker, got, hold, is_hinted, json, newest, payload_of, seconds, success,
    tenant,
};
use crate::store::{
    Answer, Claimed, Mailbox, NewKeySignal, NewSignal, Recording, Refusal, SIGNAL_KEPT,
    SIGNALS_MAX, StoreError, TakeSignal, Which,
};

fn name(name: &str) -> StepName {
    StepName::new(name).expect("the name is fine")
}

fn key(key: &str) -> SignalKey {
    SignalKey::new(key).expect("the key is fine")
}

/// A signal "paid" to a key of the default tenant.
fn signal(id: u128, to: &str, value: &str) -> NewKeySignal {
    let to = Mailbox { tenant: Tenant::default(), key: key(to), name: name("paid") };
    let id = SignalId::from_random(id);
    NewKeySignal { id, to, value: json(value), keep_for: SIGNAL_KEPT }
}

async fn send(bench: &Bench<'_>, signal: NewKeySignal) {
    bench.store.signal_key(signal).await.expect("sending works");
}

/// A call that waits for the signal "paid" to a key.
fn open(call: u32, to: &str, wait: Wait) -> StepWrite {
    let change = StepChange::Open { failures: 0, failure: None, wait };
    let (name, kind, key) = (name("paid"), StepKind::Signal, Some(key(to)));
    StepWrite { call: Call(call), name, kind, key, change }
}

fn park(steps: Vec<StepWrite>) -> Decision {
    Decision::Park(Parking { steps, waits: Vec::new(), awaits: true })
}

/// Goes on waiting for calls that were recorded.
fn park_again(calls: &[u32]) -> Decision {
    let waits = calls.iter().map(|call| Call(*call)).collect();
    Decision::Park(Parking { steps: Vec::new(), waits, awaits: true })
}

fn ask(claimed: &Claimed, call: u32, to: &str) -> TakeSignal {
    let (held, call, name) = (hold(claimed), Call(call), name("paid"));
    TakeSignal { held, call, name, key: Some(key(to)), which: Which::Newest }
}

/// Takes the oldest up to one of them.
fn up_to(take: TakeSignal, id: u128) -> TakeSignal {
    let which = Which::UpTo(SignalId::from_random(id), take.call.0);
    TakeSignal { which, ..take }
}

fn value(text: &str) -> Result<Option<Payload>, Refusal> {
    Ok(Some(json(text)))
}

/// Starts a run whose function is parked in its first call until a signal to the key comes.
async fn waiter(bench: &Bench<'_>, worker: &Worker<'_>, to: &str) -> RunId {
    let run = bench.start("w").await;
    let claimed = worker.claim_one().await;
    bench.accept(&claimed, park(vec![open(1, to, Wait::Forever)])).await;
    assert_eq!(state(bench, run).await, TaskState::Waiting);
    run
}

async fn state(bench: &Bench<'_>, run: RunId) -> TaskState {
    bench.task(run, "a").await.state
}

async fn steps(bench: &Bench<'_>, claimed: &Claimed) -> Vec<StepRecord> {
    bench.store.list_steps(claimed.task, None, 100).await.expect("listing works")
}

pub(crate) async fn a_signal_to_a_key_lets_go_on_who_waits_for_it(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let worker = bench.worker().await;
    let run = waiter(bench, &worker, "pay_1").await;
    let mut hints = bench.store.timer_hints();
    hints.take();
    send(bench, signal(1, "pay_1", "[7]")).await;
    assert!(is_hinted(&mut hints).await, "whoever sweeps is told");
    assert_eq!(bench.promote().await, 1);
    assert_eq!(bench.promote().await, 0);
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.steps[0].key, Some(key("pay_1")));
    assert_eq!(bench.take(ask(&claimed, 1, "pay_1")).await, value("[7]"));
    let again = bench.ask(up_to(ask(&claimed, 1, "pay_1"), 1)).await;
    assert_eq!(again, got("[7]"), "the answer was lost");
    let other =
        TakeSignal { which: Which::UpTo(SignalId::from_random(1), 2), ..ask(&claimed, 1, "pay_1") };
    assert_eq!(bench.ask(other).await, Err(Refusal::Invalid), "its place is another");
    let known = steps(bench, &claimed).await;
    assert_eq!((known[0].number(), &known[0].key), (Some(1), &Some(key("pay_1"))));
    assert_eq!(bench.take(ask(&claimed, 2, "pay_1")).await, Ok(None));
    bench.succeed(&claimed).await;
    assert_eq!(bench.history(run, "a").await, "queued started parked resumed started succeeded");
    // One that is told and not let go on yet is as it should be.
    let told = waiter(bench, &worker, "pay_1").await;
    send(bench, signal(2, "pay_1", "[8]")).await;
    assert_eq!(state(bench, told).await, TaskState::Waiting);
}

pub(crate) async fn signals_to_a_key_are_kept_and_taken_in_their_order(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    for number in 1..=5 {
        send(bench, signal(number, "pay_1", &number.to_string())).await;
    }
    let (one, _) = (bench.start("w").await, bench.start("w").await);
    let own =
        NewSignal { id: SignalId::from_random(6), run: one, name: name("paid"), value: json("[]") };
    bench.store.signal(own).await.expect("sending works");
    let worker = bench.worker().await;
    let both = worker.claim(2).await;
    // One batch of two functions, of which one asks twice.
    let takes = vec![
        ask(&both[0], 1, "pay_1"),
        up_to(ask(&both[0], 1, "pay_1"), 3),
        up_to(ask(&both[1], 1, "pay_1"), 3),
        up_to(ask(&both[0], 2, "pay_1"), 3),
        up_to(ask(&both[0], 4, "pay_1"), 3),
        up_to(TakeSignal { key: None, ..ask(&both[0], 3, "pay_1") }, 6),
        TakeSignal { key: None, ..ask(&both[0], 5, "pay_1") },
        up_to(TakeSignal { key: None, ..ask(&both[1], 2, "pay_1") }, 4),
    ];
    let taken = bench.store.take_signals(takes).await.expect("asking works");
    // What one of them took is not there for those behind it.
    let expected =
        [newest(5), got("1"), got("2"), got("3"), Ok(None), got("[]"), Ok(None), Ok(None)];
    assert_eq!(taken, expected, "signals to a run are others");
    assert_eq!(bench.take(ask(&both[1], 3, "pay_1")).await, value("4"));
    assert_eq!(bench.take(ask(&both[0], 4, "pay_1")).await, value("5"));
    assert_eq!(bench.take(ask(&both[1], 4, "pay_1")).await, Ok(None));
}

pub(crate) async fn a_question_for_a_signal_that_is_heard_late_takes_nothing(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let own = |id, value| NewSignal {
        id: SignalId::from_random(id),
        run,
        name: name("paid"),
        value: json(value),
    };
    for is_keyed in [true, false] {
        let calls = if is_keyed { [1, 2] } else { [3, 4] };
        let [one, two] = calls.map(|call| {
            let ask = ask(&claimed, call, "pay_1");
            TakeSignal { key: ask.key.clone().filter(|_| is_keyed), ..ask }
        });
        let send = async |id, value| match is_keyed {
            true => send(bench, signal(id, "pay_1", value)).await,
            false => bench.store.signal(own(id, value)).await.expect("sending works"),
        };
        let before = steps(bench, &claimed).await.len();
        assert_eq!(bench.ask(one.clone()).await, Ok(None));
        send(1, "1").await;
        // The same question once more: what it is told of stays where it is.
        assert_eq!(bench.ask(one.clone()).await, newest(1));
        assert_eq!(bench.ask(one.clone()).await, newest(1));
        assert_eq!(steps(bench, &claimed).await.len(), before);
        assert_eq!(bench.ask(up_to(two.clone(), 1)).await, got("1"));
        assert_eq!(bench.ask(two).await, Err(Refusal::Invalid), "it has its result");
        // It is another's now, and that there is a next one changes nothing.
        assert_eq!(bench.ask(up_to(one.clone(), 1)).await, Ok(None));
        send(2, "2").await;
        assert_eq!(bench.ask(up_to(one.clone(), 1)).await, Ok(None));
        assert_eq!(bench.take(one).await, value("2"));
    }
}

pub(crate) async fn keys_names_and_tenants_are_apart(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let worker = bench.worker().await;
    let run = waiter(bench, &worker, "pay_1").await;
    send(bench, signal(1, "pay_2", "1")).await;
    let mut other = signal(2, "pay_1", "2");
    other.to.name = name("refunded");
    send(bench, other).await;
    let mut foreign = signal(3, "pay_1", "3");
    foreign.to.tenant = tenant("acme");
    send(bench, foreign).await;
    assert_eq!(bench.promote().await, 0);
    assert_eq!(state(bench, run).await, TaskState::Waiting);
    // A function of the other tenant gets what is its tenant's, and nothing else.
    send(bench, signal(4, "pay_1", "4")).await;
    bench.start_for("w", "acme", 1).await;
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.tenant, tenant("acme"));
    assert_eq!(bench.take(ask(&claimed, 1, "pay_1")).await, value("3"));
    assert_eq!(bench.take(ask(&claimed, 2, "pay_1")).await, Ok(None));
    bench.promote().await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.take(ask(&claimed, 1, "pay_1")).await, value("4"));
    assert_eq!(bench.take(ask(&claimed, 2, "pay_1")).await, Ok(None));
}

pub(crate) async fn who_looked_before_a_signal_to_a_key_came_is_not_parked(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    assert_eq!(bench.take(ask(&first, 1, "pay_1")).await, Ok(None));
    send(bench, signal(1, "pay_1", "1")).await;
    bench.accept(&first, park(vec![open(1, "pay_1", Wait::Forever)])).await;
    let second = worker.claim_one().await;
    assert_eq!(bench.take(ask(&second, 1, "pay_1")).await, value("1"));
    // A call that was recorded to wait before is looked after as well.
    let wait = Recording { held: hold(&second), steps: vec![open(2, "pay_1", Wait::Forever)] };
    assert_eq!(bench.store.record(vec![wait]).await, Ok(vec![Answer::Accepted]));
    send(bench, signal(2, "pay_1", "2")).await;
    bench.accept(&second, park_again(&[2])).await;
    let third = worker.claim_one().await;
    assert_eq!(bench.take(ask(&third, 2, "pay_1")).await, value("2"));
    bench.succeed(&third).await;
}

pub(crate) async fn each_signal_to_a_key_goes_to_one_of_those_who_wait(bench: &Bench<'_>) {
    bench.register("w", "a*9").await;
    let worker = bench.worker().await;
    waiter(bench, &worker, "pay_1").await;
    waiter(bench, &worker, "pay_1").await;
    send(bench, signal(1, "pay_1", "1")).await;
    bench.promote().await;
    let both = worker.claim(9).await;
    assert_eq!(both.len(), 2, "the first that asks gets it");
    assert_eq!(bench.take(ask(&both[1], 1, "pay_1")).await, value("1"));
    assert_eq!(bench.take(ask(&both[0], 1, "pay_1")).await, Ok(None));
    bench.succeed(&both[1]).await;
    bench.accept(&both[0], park_again(&[1])).await;
    assert_eq!(bench.promote().await, 0);
    send(bench, signal(2, "pay_1", "2")).await;
    send(bench, signal(3, "pay_1", "3")).await;
    assert_eq!(bench.promote().await, 1, "it is told once");
    let last = worker.claim_one().await;
    assert_eq!(bench.take(ask(&last, 1, "pay_1")).await, value("2"));
    bench.succeed(&last).await;
}

pub(crate) async fn a_signal_to_a_key_is_not_lost_with_who_was_let_go_on_for_it(bench: &Bench<'_>) {
    bench.register("w", "a*9").await;
    let worker = bench.worker().await;
    let runs = [
        waiter(bench, &worker, "pay_1").await,
        waiter(bench, &worker, "pay_1").await,
        waiter(bench, &worker, "pay_1").await,
    ];
    send(bench, signal(1, "pay_1", "1")).await;
    bench.promote().await;
    let mut woken = worker.claim(9).await;
    woken.sort_by_key(|claimed| claimed.task);
    let cancelled = woken.iter().find(|one| one.task.run == runs[0]).expect("it is ready");
    bench.store.cancel_run(runs[0], None).await.expect("cancelling works");
    let refused = bench.take(ask(cancelled, 1, "pay_1")).await;
    assert_eq!(refused, Err(Refusal::RunCancelled));
    let failed = woken.iter().find(|one| one.task.run == runs[1]).expect("it is ready");
    bench.fail(failed).await;
    bench.advance(LEASE).await;
    bench.reap().await;
    let stale = woken.iter().find(|one| one.task.run == runs[2]).expect("it is ready");
    assert_eq!(bench.take(ask(stale, 1, "pay_1")).await, Err(Refusal::LeaseLost));
    let claimed = bench.worker().await.claim_one().await;
    assert_eq!(bench.take(ask(&claimed, 1, "pay_1")).await, value("1"));
}

pub(crate) async fn who_waits_no_more_is_not_told(bench: &Bench<'_>) {
    bench.register("w", "a*9").await;
    let worker = bench.worker().await;
    let cancelled = waiter(bench, &worker, "pay_1").await;
    bench.store.cancel_run(cancelled, None).await.expect("cancelling works");
    bench.start("w").await;
    let timed = worker.claim_one().await;
    bench.accept(&timed, park(vec![open(1, "pay_1", Wait::For(seconds(60)))])).await;
    bench.advance(seconds(60)).await;
    assert_eq!(bench.promote().await, 1);
    send(bench, signal(1, "pay_1", "1")).await;
    assert_eq!(bench.promote().await, 0, "nobody waits");
    let timed = worker.claim_one().await;
    assert_eq!(bench.take(ask(&timed, 1, "pay_1")).await, value("1"), "it came just in time");
    // One that was told, and ends before it goes on.
    bench.accept(&timed, park(vec![open(2, "pay_1", Wait::Forever)])).await;
    send(bench, signal(2, "pay_1", "2")).await;
    bench.store.cancel_run(timed.task.run, None).await.expect("cancelling works");
    bench.promote().await;
    assert_eq!(state(bench, timed.task.run).await, TaskState::Cancelled);
    // One that is told and due at once.
    bench.start("w").await;
    let both = worker.claim_one().await;
    assert_eq!(bench.take(ask(&both, 1, "pay_1")).await, value("2"));
    bench.accept(&both, park(vec![open(2, "pay_1", Wait::For(seconds(60)))])).await;
    send(bench, signal(3, "pay_1", "3")).await;
    bench.advance(seconds(60)).await;
    bench.promote().await;
    let both = worker.claim_one().await;
    assert_eq!(bench.take(ask(&both, 2, "pay_1")).await, value("3"));
    // One that begins afresh knows of nothing, and may wait for the same.
    bench.accept(&both, Decision::Continue(json("1"))).await;
    let afresh = worker.claim_one().await;
    bench.accept(&afresh, park(vec![open(1, "pay_1", Wait::Forever)])).await;
    send(bench, signal(4, "pay_1", "4")).await;
    assert_eq!(bench.promote().await, 1);
    bench.accept(&worker.claim_one().await, success()).await;
}

pub(crate) async fn the_first_of_several_keys_lets_a_function_go_on(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    let calls = vec![open(1, "pay_1", Wait::Forever), open(2, "pay_2", Wait::Forever)];
    bench.accept(&first, park(calls)).await;
    send(bench, signal(1, "pay_2", "2")).await;
    bench.promote().await;
    let second = worker.claim_one().await;
    assert_eq!(bench.take(ask(&second, 1, "pay_1")).await, Ok(None));
    assert_eq!(bench.take(ask(&second, 2, "pay_2")).await, value("2"));
    bench.accept(&second, park(vec![open(3, "pay_3", Wait::Forever)])).await;
    send(bench, signal(2, "pay_1", "1")).await;
    bench.promote().await;
    assert_eq!(state(bench, run).await, TaskState::Waiting, "it was left");
    send(bench, signal(3, "pay_3", "3")).await;
    bench.promote().await;
    let third = worker.claim_one().await;
    assert_eq!(bench.take(ask(&third, 3, "pay_3")).await, value("3"));
    bench.succeed(&third).await;
}

pub(crate) async fn a_signal_to_a_key_that_is_sent_again_is_sent_once(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let minute = NewKeySignal { keep_for: seconds(60), ..signal(1, "pay_1", "1") };
    send(bench, minute.clone()).await;
    send(bench, NewKeySignal { value: json("2"), ..minute.clone() }).await;
    send(bench, signal(1, "pay_2", "9")).await;
    assert_eq!(bench.take(ask(&claimed, 1, "pay_1")).await, value("1"));
    send(bench, minute.clone()).await;
    assert_eq!(bench.take(ask(&claimed, 2, "pay_1")).await, Ok(None), "it is known to be taken");
    assert_eq!(bench.take(ask(&claimed, 2, "pay_2")).await, value("9"));
    bench.advance(seconds(60) - TICK).await;
    send(bench, minute.clone()).await;
    assert_eq!(bench.take(ask(&claimed, 3, "pay_1")).await, Ok(None));
    bench.advance(TICK).await;
    send(bench, minute).await;
    assert_eq!(bench.take(ask(&claimed, 3, "pay_1")).await, value("1"), "its time was over");
}

pub(crate) async fn a_signal_to_a_key_is_kept_for_its_time(bench: &Bench<'_>) {
    bench.register("w", "a*9").await;
    let short = |id, text| NewKeySignal { keep_for: seconds(60), ..signal(id, "pay_1", text) };
    send(bench, short(1, "1")).await;
    send(bench, short(2, "2")).await;
    bench.start("w").await;
    let worker = bench.worker_with_lease(seconds(3_600)).await;
    let claimed = worker.claim_one().await;
    bench.advance(seconds(60) - TICK).await;
    assert_eq!(bench.take(ask(&claimed, 1, "pay_1")).await, value("1"));
    bench.advance(TICK).await;
    assert_eq!(bench.take(ask(&claimed, 2, "pay_1")).await, Ok(None));
    bench.accept(&claimed, park(vec![open(2, "pay_1", Wait::Forever)])).await;
    assert_eq!(state(bench, claimed.task.run).await, TaskState::Waiting);
    // Whoever was told of one that has expired since goes on for nothing, and waits again.
    send(bench, short(3, "3")).await;
    bench.advance(seconds(60)).await;
    bench.promote().await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.take(ask(&claimed, 2, "pay_1")).await, Ok(None));
    bench.accept(&claimed, park_again(&[2])).await;
    send(bench, short(4, "4")).await;
    bench.promote().await;
    let claimed = worker.claim_one().await;
    assert_eq!(bench.take(ask(&claimed, 2, "pay_1")).await, value("4"));
}

pub(crate) async fn a_mailbox_keeps_so_many_signals_that_nobody_took(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let second = |id| NewKeySignal { keep_for: seconds(1), ..signal(id, "pay_1", "1") };
    for number in 0..SIGNALS_MAX as u128 {
        send(bench, second(number)).await;
    }
    let more = signal(SIGNALS_MAX as u128, "pay_1", "2");
    let text = "key \"pay_1\" of tenant \"default\" has 1000 signals \"paid\" that nobody took, \
                this is one more";
    let full = Err(StoreError::Conflict(text.to_owned()));
    assert_eq!(bench.store.signal_key(more.clone()).await, full);
    send(bench, second(0)).await;
    let mut other = more.clone();
    other.to.name = name("refunded");
    send(bench, NewKeySignal { id: SignalId::from_random(u128::MAX), ..other }).await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    assert_eq!(bench.take(ask(&claimed, 1, "pay_1")).await, value("1"));
    send(bench, more).await;
    let last = signal(SIGNALS_MAX as u128 + 1, "pay_1", "3");
    assert_eq!(bench.store.signal_key(last.clone()).await, full);
    bench.advance(seconds(1)).await;
    send(bench, last).await;
    assert_eq!(bench.take(ask(&claimed, 2, "pay_1")).await, value("2"));
}

pub(crate) async fn a_signal_to_a_key_has_limits(bench: &Bench<'_>) {
    let value = payload_of(bench.store.payload_limit().get() + 1);
    let large = NewKeySignal { value, ..signal(1, "pay_1", "1") };
    let kept = |keep_for| NewKeySignal { keep_for, ..signal(1, "pay_1", "1") };
    let too_long = kept(WAIT_MAX + TICK);
    for wrong in [large, kept(Duration::ZERO), too_long] {
        let answer = bench.store.signal_key(wrong).await;
        let what = "signal \"paid\" to key \"pay_1\" ";
        assert!(
            matches!(&answer, Err(StoreError::Conflict(text)) if text.starts_with(what)),
            "{answer:?}"
        );
    }
    send(bench, kept(WAIT_MAX)).await;
    let long = "k".repeat(windlass_core::name::KEY_BYTES_MAX);
    send(bench, signal(2, &long, "2")).await;
    bench.register("w", "a*2").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    assert_eq!(
        bench.take(ask(&claimed, 1, &long)).await,
        Ok(Some(Payload::encode(&2).expect("it has a form")))
    );
}

pub(crate) async fn a_call_that_waits_for_a_key_takes_no_other_signal(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let record = |step| {
        let recordings = vec![Recording { held: hold(&claimed), steps: vec![step] }];
        async { bench.store.record(recordings).await.expect("recording works")[0] }
    };
    let wait = open(1, "pay_1", Wait::Forever);
    assert_eq!(record(wait.clone()).await, Answer::Accepted);
    let invalid = Answer::Refused(Refusal::Invalid);
    assert_eq!(record(StepWrite { key: Some(key("pay_2")), ..wait.clone() }).await, invalid);
    assert_eq!(record(StepWrite { key: None, ..wait.clone() }).await, invalid);
    let sleep = StepWrite { kind: StepKind::Sleep, ..open(2, "pay_1", Wait::Forever) };
    assert_eq!(record(sleep).await, invalid, "only a signal has a key");
    send(bench, signal(1, "pay_2", "2")).await;
    assert_eq!(bench.take(ask(&claimed, 1, "pay_2")).await, Err(Refusal::Invalid));
    assert_eq!(bench.take(ask(&claimed, 2, "pay_2")).await, value("2"), "it is still there");
}

pub(crate) async fn a_call_that_waits_for_a_key_cannot_end_with_another(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    bench.start("w").await;
    let claimed = bench.worker().await.claim_one().await;
    let record = async |step: StepWrite| {
        let recording = Recording { held: hold(&claimed), steps: vec![step] };
        bench.store.record(vec![recording]).await.expect("recording works").remove(0)
    };
    let done = |to| {
        let change = StepChange::Done { number: 1, result: StepResult::Value(json("1")) };
        StepWrite { change, ..open(1, to, Wait::Forever) }
    };
    assert_eq!(record(open(1, "pay_1", Wait::Forever)).await, Answer::Accepted);
    assert_eq!(record(done("pay_2")).await, Answer::Refused(Refusal::Invalid));
    assert_eq!(record(done("pay_1")).await, Answer::Accepted);
}

pub(crate) async fn a_call_that_is_named_twice_when_it_is_parked_waits_once(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let run = bench.start("w").await;
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    let wait = open(1, "pay_1", Wait::Forever);
    let recordings = vec![Recording { held: hold(&claimed), steps: vec![wait.clone()] }];
    assert_eq!(bench.store.record(recordings).await, Ok(vec![Answer::Accepted]));
    let parking = Parking { steps: vec![wait], waits: vec![Call(1), Call(1)], awaits: true };
    bench.accept(&claimed, Decision::Park(parking)).await;
    send(bench, signal(1, "pay_1", "1")).await;
    assert_eq!(bench.promote().await, 1);
    assert_eq!(state(bench, run).await, TaskState::Ready);
}

pub(crate) async fn a_limited_function_that_is_told_and_due_at_once_goes_on_once(
    bench: &Bench<'_>,
) {
    let mut task = TaskDraft::new("a", TaskKind::Handler);
    task.limits = vec![Limit::of(1)];
    let definition = DefinitionDraft::new("w").task(task).build().expect("it is a workflow");
    bench.try_register(Arc::new(definition)).await.expect("it can be registered");
    let (run, next) = (bench.start("w").await, bench.start("w").await);
    let worker = bench.worker().await;
    let claimed = worker.claim_one().await;
    bench.accept(&claimed, park(vec![open(1, "pay_1", Wait::For(seconds(60)))])).await;
    send(bench, signal(1, "pay_1", "1")).await;
    bench.advance(seconds(60)).await;
    bench.promote().await;
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.task.run, state(bench, next).await), (run, TaskState::Waiting));
    assert_eq!(bench.take(ask(&claimed, 1, "pay_1")).await, value("1"));
    bench.succeed(&claimed).await;
    assert_eq!(bench.history(run, "a").await, "queued started parked queued started succeeded");
    assert_eq!(worker.claim_one().await.task.run, next);
}

pub(crate) async fn a_signal_behind_one_that_has_expired_is_taken_once(bench: &Bench<'_>) {
    bench.register("w", "a*9").await;
    send(bench, NewKeySignal { keep_for: seconds(60), ..signal(1, "pay_1", "1") }).await;
    send(bench, signal(2, "pay_1", "2")).await;
    bench.start("w").await;
    let claimed = bench.worker_with_lease(seconds(3_600)).await.claim_one().await;
    // No sweep has removed the first one.
    bench.advance(seconds(60)).await;
    assert_eq!(bench.take(ask(&claimed, 1, "pay_1")).await, value("2"));
    assert_eq!(bench.take(ask(&claimed, 2, "pay_1")).await, Ok(None));
}

pub(crate) async fn a_signal_to_a_run_does_not_wake_who_waits_for_a_key(bench: &Bench<'_>) {
    bench.register("w", "a*2").await;
    let worker = bench.worker().await;
    let run = waiter(bench, &worker, "pay_1").await;
    let signal =
        NewSignal { id: SignalId::from_random(1), run, name: name("paid"), value: json("1") };
    bench.store.signal(signal).await.expect("sending works");
    assert_eq!(bench.promote().await, 0);
    assert_eq!(state(bench, run).await, TaskState::Waiting);
}
