//! Changing.

use std::num::NonZeroU32;

use windlass_core::{ActionId, Operator, RunState, ScheduleOwner, SignalId, SignalKey, StepName};

use super::super::bench::{Bench, json, seconds, tenant};
use super::{acme, key, no_run, schedule, two};
use crate::store::{
    Action, DeadLetterFilter, Discard, LogFilter, Mailbox, NewKeySignal, NewLogEntry, NewRun,
    NewSchedule, NewSignal, Pace, Redrive, ScheduleState, ScheduleStore, Started, Store,
    StoreError,
};

fn by() -> Operator {
    Operator::new("ops").expect("it is a name")
}

fn redrive(number: u128, filter: DeadLetterFilter) -> Redrive {
    let pace = Some(Pace { per_second: NonZeroU32::MIN, from: None });
    let id = ActionId::from_random(number);
    Redrive { id, by: by().into(), filter, after: None, limit: 0, pace }
}

fn discard(number: u128, filter: DeadLetterFilter) -> Discard {
    let id = ActionId::from_random(number);
    Discard { id, by: by().into(), filter, after: None, limit: 0 }
}

fn signal(run: windlass_core::RunId) -> NewSignal {
    let name = StepName::new("go").expect("it is a name");
    NewSignal { id: SignalId::from_random(1), run, name, value: json("1") }
}

fn key_signal(whose: &str) -> NewKeySignal {
    let name = StepName::new("go").expect("it is a name");
    let key = SignalKey::new("k").expect("it is a key");
    let to = Mailbox { tenant: tenant(whose), key, name };
    NewKeySignal { id: SignalId::from_random(1), to, value: json("1"), keep_for: seconds(9) }
}

fn is_forbidden<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Forbidden(text)) if text.contains("\"acme\""))
}

pub(crate) async fn nothing_of_another_tenant_is_changed(bench: &Bench<'_>) {
    let (own, other) = two(bench).await;
    let (scope, missing) = (acme(bench), bench.run_id());
    for run in [other.failed, other.ready, other.held.task.run, missing] {
        let gone = Err(no_run(run));
        assert_eq!(scope.cancel_run(run, None).await, gone);
        assert_eq!(scope.signal(signal(run)).await, gone);
        assert_eq!(scope.retry_run(run, 1).await, Err(no_run(run)));
        assert_eq!(scope.undo_run(run).await, Err(no_run(run)));
        let entry = NewLogEntry {
            id: ActionId::from_random(99),
            by: by().into(),
            action: Action::CancelRun,
            tenant: None,
            run: Some(run),
            detail: None,
        };
        assert_eq!(scope.log(entry).await, Err(no_run(run)), "nor is anything said of it");
    }
    assert_eq!(bench.run_state(other.ready).await, RunState::Running);
    let at = bench.now().await;
    let not_there = Err(other.schedule.not_found());
    assert_eq!(scope.pause_schedule(key("zenith")).await, not_there);
    assert_eq!(scope.resume_schedule(key("zenith")).await, not_there);
    let triggered = scope.trigger_schedule(key("zenith"), missing).await;
    assert_eq!(triggered, Err(other.schedule.not_found()));
    let filled = scope.backfill_schedule(key("zenith"), at, at).await;
    assert_eq!(filled, Err(other.schedule.not_found()));
    assert_eq!(scope.delete_schedule(key("zenith")).await, Ok(()), "it stays gone");
    let there = bench.store.get_schedule(key("zenith")).await.expect("reading works");
    assert!(there.is_some(), "and stays there");
    assert!(is_forbidden(&scope.put_schedule(schedule("zenith")).await));
    assert!(is_forbidden(&scope.signal_key(key_signal("zenith")).await));

    // Dead letters: of others there are none, and what another answered is not told.
    let theirs = bench.store.discard(discard(7, DeadLetterFilter::of_run(missing))).await;
    theirs.expect("there are none");
    let of_other = scope.redrive(redrive(7, DeadLetterFilter::of_run(other.failed))).await;
    assert_eq!(of_other.expect("it is another action").runs, []);
    let of_other = scope.discard(discard(8, DeadLetterFilter::of_run(other.failed))).await;
    assert_eq!(of_other.expect("there are none").letters, 0);
    let named = DeadLetterFilter { tenant: Some(tenant("zenith")), ..Default::default() };
    assert!(is_forbidden(&scope.redrive(redrive(9, named.clone())).await));
    assert!(is_forbidden(&scope.discard(discard(10, named)).await));
    let all = scope.redrive(redrive(11, DeadLetterFilter::default())).await;
    assert_eq!(all.expect("it works").runs, [own.failed], "its own and no more");
    let again = scope.redrive(redrive(11, DeadLetterFilter::default())).await;
    assert_eq!(again.expect("it answers the same").runs, [own.failed]);
    assert_eq!(bench.run_state(other.failed).await, RunState::Failed);

    // Its own.
    assert_eq!(scope.signal(signal(own.ready)).await, Ok(()));
    assert_eq!(scope.cancel_run(own.ready, None).await, Ok(()));
    assert_eq!(bench.run_state(own.ready).await, RunState::Cancelled);
    assert!(scope.put_schedule(schedule("acme")).await.is_ok());
    assert_eq!(scope.pause_schedule(key("acme")).await, Ok(()));
    assert_eq!(scope.resume_schedule(key("acme")).await, Ok(()));
    assert!(scope.trigger_schedule(key("acme"), bench.run_id()).await.is_ok());
    assert!(scope.backfill_schedule(key("acme"), at, at).await.is_ok());
    assert_eq!(scope.delete_schedule(key("acme")).await, Ok(()));
    assert_eq!(scope.signal_key(key_signal("acme")).await, Ok(()));
    let entry = NewLogEntry {
        id: ActionId::from_random(98),
        by: by().into(),
        action: Action::CancelRun,
        tenant: None,
        run: Some(own.ready),
        detail: None,
    };
    let written = scope.log(entry).await;
    let log = bench.store.list_log(LogFilter::default()).await.expect("reading works");
    let newest = log.entries.first().expect("it was written");
    assert_eq!(newest.tenant, Some(tenant("acme")), "whose it is is said");
    assert_eq!(written, Ok(newest.id), "the id is that of the entry");
}

pub(crate) async fn what_a_program_declares_no_more_is_disabled_for_its_tenant_alone(
    bench: &Bench<'_>,
) {
    two(bench).await;
    let owner = ScheduleOwner::new("shop").expect("it is a name");
    for whose in ["acme", "zenith"] {
        let declared = NewSchedule { owner: Some(owner.clone()), ..schedule(whose) };
        bench.store.put_schedule(declared).await.expect("it makes sense");
    }
    let scope = acme(bench);
    let other = scope.disable_schedules(owner.clone(), Some(tenant("zenith")), Vec::new()).await;
    assert!(is_forbidden(&other), "{other:?}");
    let still = scope.disable_schedules(owner.clone(), None, vec![key("acme")]).await;
    assert_eq!(still, Ok(Vec::new()));
    assert_eq!(scope.disable_schedules(owner, None, Vec::new()).await, Ok(vec![key("acme")]));
    let there = bench.store.get_schedule(key("zenith")).await.expect("reading works");
    assert_eq!(there.map(|there| there.state), Some(ScheduleState::Active));
}

pub(crate) async fn what_is_started_is_the_tenants(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let scope = acme(bench);
    let run = |whose: &str| NewRun { tenant: tenant(whose), ..bench.new_run("w") };
    let (own, other, second) = (run("acme"), run("zenith"), run("acme"));
    let ids = (own.id, second.id);
    let answers = scope.start_runs(vec![own, other.clone(), second]).await.expect("it works");
    assert_eq!(answers[0], Ok(Started { run: ids.0, is_new: true }));
    assert!(is_forbidden(&answers[1]), "{answers:?}");
    assert_eq!(answers[2], Ok(Started { run: ids.1, is_new: true }));
    assert_eq!(bench.store.get_run(other.id).await, Ok(None));
    // An id that another tenant has used: what is said does not say whose.
    let taken = bench.start_run(run("zenith")).await;
    let answers = scope.start_runs(vec![NewRun { id: taken, ..run("acme") }]).await;
    let text = match answers.expect("it works").remove(0) {
        Err(StoreError::Conflict(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(!text.contains("zenith") && text.contains(&taken.to_string()), "{text}");
}
