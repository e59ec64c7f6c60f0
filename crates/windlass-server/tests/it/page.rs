//! The requests that docs/http.md shows, sent as they are written there.

use serde_json::{Value, json};
use windlass::store::BATCH_MAX;

use crate::support::{TestServer, TestWorker, single};

/// A request of the page: the verb and the body.
struct Shown {
    verb: String,
    body: String,
}

/// The blocks of the page that begin with ` ```json VERB `, in their order.
fn requests() -> Vec<Shown> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/http.md");
    let page = std::fs::read_to_string(page).expect("the page exists");
    let blocks = page.split("\n```json ").skip(1);
    let request = |block: &str| {
        let (verb, rest) = block.split_once('\n').expect("a block has lines");
        let (body, _) = rest.split_once("\n```").expect("a block has an end");
        Shown { verb: verb.to_owned(), body: body.to_owned() }
    };
    blocks.map(request).collect()
}

/// Sends the next request of the page, which must be this verb.
async fn send(
    requests: &mut impl Iterator<Item = Shown>,
    verb: &str,
    worker: &TestWorker<'_>,
    task: &Value,
    signal: &str,
) -> Value {
    let shown = requests.next().unwrap_or_else(|| panic!("the page has no more {verb}"));
    assert_eq!(shown.verb, verb, "{}", shown.body);
    let token = task["token"].as_str().expect("a task has a token");
    let body = shown.body.replace("t1.…", token).replace("5b1c…", signal);
    let answer = worker.post_text(verb, body).await;
    answer.get("tasks").map_or(answer.clone(), |tasks| tasks[0].clone())
}

/// Lets the time pass that the page sleeps for.
async fn duties(server: &TestServer) {
    let store = server.windlass.store();
    store.promote_due(BATCH_MAX).await.expect("it answers");
}

#[tokio::test]
async fn the_requests_of_the_page_run_a_durable_function() {
    let server = TestServer::start().await;
    let mut carrier = server.worker(single("ship")).await;
    let mut worker = server.worker(single("order")).await;
    let run = server.start_run("order", json!({ "item": 7 })).await;
    let accepted = json!({ "is_accepted": true, "refusal": null });
    let page = &mut requests().into_iter();

    let task = worker.claim_one().await;
    assert_eq!(send(page, "record", &worker, &task, "").await, accepted);
    let parked = send(page, "finish", &worker, &task, "").await;
    assert_eq!(parked, accepted);
    assert!(worker.claim().await.is_empty(), "it sleeps");
    let tasks = server.get(&format!("/v1/runs/{run}/tasks/only/steps")).await.ok(200);
    assert_eq!(tasks["steps"][0]["value"], json!({ "paid": 42 }));
    assert_eq!(tasks["steps"][1]["kind"], "sleep");
    assert!(tasks["steps"][1]["due"].is_string(), "{tasks}");

    // Another run goes on where the sleep is over.
    let run = server.start_run("order", json!({ "item": 7 })).await;
    let task = worker.claim_one().await;
    let record = |call: u32, kind: &str, name: &str| {
        json!({ "call": call, "name": name, "kind": kind,
            "change": { "done": { "number": call, "result": { "value": null } } } })
    };
    let steps = json!({ "steps": [record(1, "step", "charge"), record(2, "sleep", "pause")] });
    assert_eq!(worker.say("record", &task, steps).await, accepted);
    let nothing = json!({ "newest": null, "is_taken": false, "value": null, "refusal": null });
    assert_eq!(send(page, "take-signals", &worker, &task, "").await, nothing);
    assert_eq!(send(page, "finish", &worker, &task, "").await, accepted);

    let signal = json!({ "name": "approved", "value": { "by": "ada" } });
    server.post(&format!("/v1/runs/{run}/signals"), signal).await.ok(200);
    let task = worker.claim_one().await;
    let ask = json!({ "call": 3, "name": "approved" });
    let newest = worker.say("take-signals", &task, ask).await["newest"].clone();
    let newest = newest.as_str().expect("it came");
    let taken = send(page, "take-signals", &worker, &task, newest).await;
    let told =
        json!({ "newest": null, "is_taken": true, "value": { "by": "ada" }, "refusal": null });
    assert_eq!(taken, told);
    let started = send(page, "start-children", &worker, &task, "").await;
    assert!(started["run"].is_string() && started["problem"].is_null(), "{started}");
    assert_eq!(send(page, "finish", &worker, &task, "").await, accepted);
    let shipping = carrier.claim_one().await;
    assert_eq!(shipping["input"], json!({ "item": 7 }));
    carrier.finish(&shipping, json!({ "succeeded": "on its way" })).await;

    duties(&server).await;
    let task = worker.claim_one().await;
    let children = send(page, "list-children", &worker, &task, "").await;
    assert_eq!(children["children"][0]["result"], json!({ "value": "on its way" }));
    assert_eq!(send(page, "record", &worker, &task, "").await, accepted);
    worker.finish(&task, json!({ "succeeded": "done" })).await;
    assert_eq!(server.get(&format!("/v1/runs/{run}")).await.ok(200)["state"], "succeeded");
    assert!(page.next().is_none(), "the test sends every request of the page");
}
