//! The workflows of the examples, with their worker dying at every place.
//!
//! The programs themselves are run by `cargo xtask test`, on real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use windlass::testing::{CrashPlace, LinkCall, crash_everywhere};
use windlass::{RunState, TaskState};

#[allow(dead_code, reason = "its `main` is not run here")]
#[path = "../../examples/agent.rs"]
pub(crate) mod agent;
#[allow(dead_code, reason = "its `main` is not run here")]
#[path = "../../examples/nightly_report.rs"]
pub(crate) mod nightly_report;
#[allow(dead_code, reason = "its `main` is not run here")]
#[path = "../../examples/onboarding.rs"]
pub(crate) mod onboarding;
#[allow(dead_code, reason = "its `main` is not run here")]
#[path = "../../examples/order.rs"]
pub(crate) mod order;
#[allow(dead_code, reason = "its `main` is not run here")]
#[path = "../../examples/saga.rs"]
pub(crate) mod saga;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test]
async fn an_order_is_shipped_or_refunded_wherever_its_worker_dies() {
    let function = order::order(DAY).unwrap();
    let order = order::Order { id: 9182, cents: 4_200 };
    let report = crash_everywhere(&function, order.clone()).await;
    assert_eq!(report.state(), RunState::Succeeded);
    let refunded = crash_everywhere(&function, order).drive(async |test, run| {
        while run.tasks().await.unwrap()[0].state != TaskState::Waiting {
            test.pass(Duration::from_secs(1)).await;
        }
        run.signal("fraud", "stolen card").await.unwrap();
    });
    assert_eq!(refunded.await.state(), RunState::Succeeded);
    let empty = order::Order { id: 9184, cents: 0 };
    assert_eq!(crash_everywhere(&function, empty).await.state(), RunState::Failed);
}

#[tokio::test]
async fn an_onboarding_ends_the_same_wherever_its_worker_dies() {
    let function = onboarding::onboarding(DAY).unwrap();
    let address = || "ada@example.org".to_owned();
    let silent = crash_everywhere(&function, address()).await;
    assert_eq!(silent.state(), RunState::Succeeded);
    let late = crash_everywhere(&function, address()).drive(async |test, run| {
        test.pass(DAY + DAY / 2).await;
        run.signal("confirmed", &()).await.unwrap();
    });
    let late = late.await;
    assert_eq!(late.state(), RunState::Succeeded);
    assert!(late.places().len() < silent.places().len(), "it is reminded once");
}

#[tokio::test]
async fn a_nightly_report_counts_every_shop_once_wherever_its_worker_dies() {
    let report = nightly_report::report().unwrap();
    let tried = crash_everywhere(&report.workflow, 14).register(&report.count).await;
    assert_eq!(tried.state(), RunState::Succeeded);
}

#[tokio::test]
async fn an_agent_pays_for_a_call_twice_only_if_it_was_not_recorded() {
    let model = Arc::new(agent::Model { calls: AtomicU32::new(0) });
    let function = agent::agent(Arc::clone(&model)).unwrap();
    let question = "how far is it".to_owned();
    let report = crash_everywhere(&function, question)
        .before_each(|| model.calls.store(0, Ordering::Relaxed))
        .after_each(|place| {
            let is_unrecorded = matches!(
                place,
                Some(CrashPlace::Call { call: LinkCall::Record, names, is_applied: false })
                    if names.contains(&"\"think\"".to_owned())
            );
            let calls = if is_unrecorded { 6 } else { 5 };
            assert_eq!(model.calls.load(Ordering::Relaxed), calls, "{place:?}");
        })
        .await;
    assert_eq!(report.state(), RunState::Succeeded);
}

#[tokio::test]
async fn a_journey_that_fails_or_is_cancelled_is_given_back_wherever_its_worker_dies() {
    let bookings = saga::Bookings::default();
    let journey = saga::journey(&bookings).unwrap();
    let given_back =
        ["booked a car", "booked a hotel", "gave back a hotel #17", "gave back a car #17"];
    let failed = crash_everywhere(&journey, "the moon".to_owned())
        .drive(async |_, run| run.signal("confirmed", &()).await.unwrap())
        .before_each(|| drop(bookings.take()))
        .after_each(|place| assert_eq!(bookings.take(), given_back, "{place:?}"))
        .await;
    assert_eq!(failed.state(), RunState::Failed);
    let is_of_undo = |place: &&CrashPlace| place.to_string().contains("undo");
    assert!(failed.places().iter().any(|place| is_of_undo(&place)), "{:?}", failed.places());
    let cancelled = crash_everywhere(&journey, "Lisbon".to_owned())
        .drive(async |test, run| {
            while run.tasks().await.unwrap()[0].state != TaskState::Waiting {
                test.pass(Duration::from_secs(1)).await;
            }
            run.cancel("the plans have changed").await.unwrap();
        })
        .before_each(|| drop(bookings.take()))
        .after_each(|place| assert_eq!(bookings.take(), given_back, "{place:?}"))
        .await;
    assert_eq!(cancelled.state(), RunState::Cancelled);
}
