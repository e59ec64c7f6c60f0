//! What a program of the version before writes, beside one of this version.

use tokio_postgres::Client;
use windlass::store::{Checkpoint, Claimed, Held, WorkerLink};
use windlass_core::Payload;

use super::driver::{Worker, start, workflow};
use super::{Postgres, postgres};

/// How version 2 of the schema keeps a checkpoint: it knows of no numbers.
async fn keep_as_before(client: &Client, claimed: &Claimed, value: &str) {
    let sql = format!(
        "insert into windlass.checkpoints (run_id, idx, fence, value)
         values ('{}', {}, {}, '{value}')
         on conflict (run_id, idx) do update
         set fence = excluded.fence, value = excluded.value",
        claimed.task.run, claimed.task.index.0, claimed.fence.0
    );
    client.batch_execute(&sql).await.expect("a program of the version before works on");
}

async fn keep(test: &Postgres, claimed: &Claimed, number: u32, value: &str) {
    let held = Held { task: claimed.task, fence: claimed.fence };
    let value = Payload::from_json(value).expect("it is JSON");
    let checkpoint = Checkpoint { held, number, value };
    test.store.checkpoint(vec![checkpoint]).await.expect("keeping works");
}

/// A worker of this version goes from a new server to an old one and back while it runs a task
/// that was run before, for longer.
#[tokio::test]
async fn a_checkpoint_that_went_through_an_old_server_holds_no_newer_one_back() {
    let test = postgres().await;
    let client = test.database.client().await;
    let one = workflow("one", &["a"]);
    start(&*test.store, &one).await;
    let worker = Worker::join(&*test.store, &one).await;
    let next = async |claimed: &Claimed| {
        let (task, fence) = (claimed.task, claimed.fence);
        let release = windlass::store::Release { task, fence, delay: std::time::Duration::ZERO };
        test.store.release(vec![release]).await.expect("releasing works");
        let mut claimed = worker.claim(&*test.store, 1).await;
        let claimed = claimed.pop().expect("it is ready");
        let kept = claimed.checkpoint.as_ref().expect("there is one").as_str().to_owned();
        (claimed, kept)
    };
    let first = worker.claim(&*test.store, 1).await.pop().expect("it is ready");
    for number in 1..=9 {
        keep(&test, &first, number, &number.to_string()).await;
    }
    let (second, kept) = next(&first).await;
    assert_eq!(kept, "9");
    keep_as_before(&client, &second, "10").await;
    keep(&test, &second, 2, "11").await;
    let (third, kept) = next(&second).await;
    assert_eq!(kept, "11", "the numbers of an older fence say nothing");
    // And within one fence the next one is always newer.
    keep(&test, &third, 1, "12").await;
    keep_as_before(&client, &third, "13").await;
    keep(&test, &third, 3, "14").await;
    assert_eq!(next(&third).await.1, "14");
}
