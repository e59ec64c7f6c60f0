//! What is left of signals to keys in the tables.

use std::time::Duration;

use windlass::store::{
    Claimed, Held, Mailbox, NewKeySignal, SIGNAL_KEPT, Signalled, Store, TakeSignal, Which,
    WorkerLink,
};
use windlass_core::{Call, Payload, SignalId, SignalKey, StepName, Tenant};

use super::driver::{Worker, start, workflow};
use super::{Postgres, postgres};

const MINUTE: Duration = Duration::from_secs(60);

fn key() -> SignalKey {
    SignalKey::new("pay_1").expect("it is a key")
}

fn name() -> StepName {
    StepName::new("paid").expect("it is a name")
}

async fn send(test: &Postgres, id: u128, keep_for: Duration) {
    let to = Mailbox { tenant: Tenant::default(), key: key(), name: name() };
    let (id, value) = (SignalId::from_random(id), Payload::encode(&[7]).expect("it has a form"));
    let signal = NewKeySignal { id, to, value, keep_for };
    test.store.signal_key(signal).await.expect("sending works");
}

fn take(claimed: &Claimed) -> TakeSignal {
    let held = Held { task: claimed.task, fence: claimed.fence };
    let which = Which::UpTo(SignalId::from_random(1), 1);
    TakeSignal { held, call: Call(1), name: name(), key: Some(key()), which }
}

/// What the rows say, in the order in which they came.
async fn values(test: &Postgres) -> Vec<String> {
    let sql = "select value::text from windlass.key_signals order by seq";
    let rows = test.database.client().await.query(sql, &[]).await.expect("it can be read");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn signals_to_keys_are_deleted_when_their_time_is_over() {
    let test = postgres().await;
    let one = workflow("one", &["a"]);
    start(&*test.store, &one).await;
    let worker = Worker::join(&*test.store, &one).await;
    let claimed = worker.claim(&*test.store, 1).await;
    for id in 1..=3 {
        send(&test, id, MINUTE).await;
    }
    send(&test, 4, SIGNAL_KEPT).await;
    let taken = test.store.take_signals(vec![take(&claimed[0])]).await.expect("asking works");
    let value = Payload::encode(&[7]).expect("it has a form");
    assert_eq!(taken, [Ok(Some(Signalled::Value(value)))]);
    assert_eq!(values(&test).await, ["null", "[7]", "[7]", "[7]"], "what was taken says nothing");
    test.clock.advance(MINUTE - Duration::from_micros(1));
    test.store.promote_due(100).await.expect("promoting works");
    assert_eq!(values(&test).await.len(), 4);
    test.clock.advance(Duration::from_micros(1));
    test.store.promote_due(2).await.expect("promoting works");
    assert_eq!(values(&test).await.len(), 2, "a sweep has a limit");
    test.store.promote_due(2).await.expect("promoting works");
    assert_eq!(values(&test).await, ["[7]"]);
    test.clock.advance(SIGNAL_KEPT);
    test.store.promote_due(100).await.expect("promoting works");
    assert!(values(&test).await.is_empty());
}
