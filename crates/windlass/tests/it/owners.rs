//! Workers that own keys, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::testing::TestEngine;
use windlass::{Ctx, Limit, TaskError, WorkerId, Workflow};
use windlass_core::{EventBody, TaskEventKind};

const MINUTE: Duration = Duration::from_secs(60);
const KEYS: u64 = 20;

#[derive(Serialize, Deserialize)]
struct Message {
    customer: u64,
}

async fn receive(ctx: Ctx<Message>) -> Result<u64, TaskError> {
    Ok(ctx.input().customer)
}

fn inbox() -> Workflow<Message> {
    let mut inbox = Workflow::<Message>::builder("inbox");
    inbox.task("receive").limit(Limit::per("customer", 1).owned()).run(receive);
    inbox.build().expect("the workflow is valid")
}

/// Sends a message to each customer. Answers who received it.
async fn send(test: &TestEngine, inbox: &Workflow<Message>) -> BTreeMap<u64, WorkerId> {
    let mut runs = Vec::new();
    for customer in 0..KEYS {
        let run = test.start(inbox, Message { customer }).await.expect("it can be started");
        runs.push((customer, run));
    }
    test.run_until_ended().await;
    let mut receivers = BTreeMap::new();
    for (customer, run) in runs {
        for event in test.history(&run).await.events() {
            if let EventBody::Task(event) = &event.body
                && let TaskEventKind::Started { worker, .. } = event.kind
            {
                receivers.insert(customer, worker);
            }
        }
    }
    receivers
}

#[tokio::test]
async fn workers_keep_their_keys_while_they_have_nothing_to_do() {
    let inbox = inbox();
    let test = TestEngine::new().register(&inbox).workers(3).lease(Duration::from_secs(6));
    // All of them are there before the first comes.
    test.advance(MINUTE).await;
    let first = send(&test, &inbox).await;
    assert_eq!(first.len() as u64, KEYS);
    assert_eq!(first.values().collect::<BTreeSet<_>>().len(), 3, "all have some");
    test.advance(20 * MINUTE).await;
    assert_eq!(send(&test, &inbox).await, first);
    test.assert_promises_kept().await;
}
