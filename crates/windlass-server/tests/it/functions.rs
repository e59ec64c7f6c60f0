//! Durable functions whose worker speaks HTTP: what docs/http.md tells, call by call.

use serde_json::{Value, json};
use windlass::store::BATCH_MAX;

use crate::support::{TestServer, TestWorker, single};

/// What is recorded of a call that waits.
fn open(call: u32, kind: &str, name: &str, wait: Value) -> Value {
    json!({ "call": call, "name": name, "kind": kind, "change": { "open": { "wait": wait } } })
}

/// What is recorded of a call that has a result.
fn done(call: u32, kind: &str, name: &str, result: Value) -> Value {
    // Nothing runs beside anything else here: results come in the order of the calls.
    json!({ "call": call, "name": name, "kind": kind,
        "change": { "done": { "number": call, "result": result } } })
}

async fn record(worker: &TestWorker<'_>, task: &Value, step: Value) {
    let answer = worker.say("record", task, json!({ "steps": [step] })).await;
    assert_eq!(answer["is_accepted"], true, "{answer}");
}

async fn park(worker: &TestWorker<'_>, task: &Value, step: Value, awaits: bool) {
    let parked = json!({ "parked": { "steps": [step], "awaits": awaits } });
    let answer = worker.finish(task, parked).await;
    assert_eq!(answer["is_accepted"], true, "{answer}");
}

/// What happens by itself where a process does the duties.
async fn duties(server: &TestServer) {
    let store = server.windlass.store();
    store.promote_due(BATCH_MAX).await.expect("it answers");
    store.reap(BATCH_MAX).await.expect("it answers");
}

async fn state(server: &TestServer, run: &str) -> Value {
    server.get(&format!("/v1/runs/{run}")).await.ok(200)["state"].clone()
}

#[tokio::test]
async fn a_function_makes_a_step_sleeps_takes_a_signal_and_waits_for_a_child() {
    let server = TestServer::start().await;
    let mut carrier = server.worker(single("ship")).await;
    let mut worker = server.worker(single("order")).await;
    let run = server.start_run("order", json!({ "item": 7 })).await;

    let task = worker.claim_one().await;
    assert_eq!(task["steps"], json!([]));
    record(&worker, &task, done(1, "step", "charge", json!({ "value": { "paid": 42 } }))).await;
    park(&worker, &task, open(2, "sleep", "pause", json!({ "for_ms": 0 })), false).await;

    duties(&server).await;
    let task = worker.claim_one().await;
    assert_eq!(task["attempt"], 1, "to wait is no failure");
    assert_eq!(task["steps"][0]["value"], json!({ "paid": 42 }), "it is not charged again");
    let slept = &task["steps"][1];
    assert!(slept["due"].as_str() <= task["claimed_at"].as_str(), "{slept}");
    record(&worker, &task, done(2, "sleep", "pause", json!({ "value": null }))).await;
    let ask = json!({ "call": 3, "name": "approved" });
    let none = worker.say("take-signals", &task, ask.clone()).await;
    let nothing = json!({ "newest": null, "is_taken": false, "value": null, "refusal": null });
    assert_eq!(none, nothing);
    park(&worker, &task, open(3, "signal", "approved", json!("forever")), true).await;
    assert!(worker.claim().await.is_empty(), "it waits");

    let signal = json!({ "name": "approved", "value": { "by": "ada" } });
    let sent = server.post(&format!("/v1/runs/{run}/signals"), signal).await;
    assert!(sent.status.is_success(), "{}", sent.text);
    let task = worker.claim_one().await;
    let newest = worker.say("take-signals", &task, ask.clone()).await["newest"].clone();
    let mut take = ask;
    take["up_to"] = json!({ "signal": newest, "number": 3 });
    for _ in 0..2 {
        let taken = worker.say("take-signals", &task, take.clone()).await;
        let told = json!({ "newest": null, "is_taken": true, "value": { "by": "ada" },
            "refusal": null });
        assert_eq!(taken, told, "also if the first answer was lost");
    }

    let child = json!({ "call": 4, "workflow": "ship", "input": 7 });
    let started = worker.say("start-children", &task, child.clone()).await;
    assert!(started["run"].is_string() && started["problem"].is_null(), "{started}");
    assert_eq!(worker.say("start-children", &task, child.clone()).await, started, "only once");
    let count = worker.ask("count-children", &task, json!({ "call": 4 })).await;
    assert_eq!(count, json!({ "started": 1, "open": 1 }));
    park(&worker, &task, open(4, "child", "ship", json!({ "children": 0 })), true).await;
    assert!(worker.claim().await.is_empty(), "it waits");
    let shipping = carrier.claim_one().await;
    assert_eq!((&shipping["run"], &shipping["input"]), (&started["run"], &json!(7)));
    carrier.finish(&shipping, json!({ "succeeded": "on its way" })).await;

    duties(&server).await;
    let task = worker.claim_one().await;
    assert_eq!(worker.say("start-children", &task, child).await, started, "in a later claim too");
    let children = worker.ask("list-children", &task, json!({ "call": 4 })).await;
    let child = &children["children"][0];
    assert_eq!((&child["run"], &child["state"]), (&started["run"], &json!("succeeded")));
    assert_eq!(child["result"], json!({ "value": "on its way" }));
    record(&worker, &task, done(4, "child", "ship", child["result"].clone())).await;
    worker.finish(&task, json!({ "succeeded": "done" })).await;
    assert_eq!(state(&server, &run).await, "succeeded");
    let steps = server.get(&format!("/v1/runs/{run}/tasks/only/steps")).await.ok(200);
    let told = |field: &str| -> Vec<Value> {
        steps["steps"].as_array().unwrap().iter().map(|step| step[field].clone()).collect()
    };
    assert_eq!(told("kind"), ["step", "sleep", "signal", "child"]);
    assert_eq!(told("number"), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_function_waits_for_several_things_and_misses_nothing_that_comes_meanwhile() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("order")).await;
    let run = server.start_run("order", json!(1)).await;
    let send = async |value: u32| {
        let signal = json!({ "name": "paid", "value": value });
        let sent = server.post(&format!("/v1/runs/{run}/signals"), signal).await;
        assert!(sent.status.is_success(), "{}", sent.text);
    };
    let ask = |call: u32| json!({ "call": call, "name": "paid" });

    let task = worker.claim_one().await;
    let none = worker.say("take-signals", &task, ask(2)).await;
    assert_eq!(none["newest"], Value::Null);
    send(1).await;
    let steps = json!([
        open(1, "sleep", "an hour", json!({ "for_ms": 3_600_000 })),
        open(2, "signal", "paid", json!("forever")),
    ]);
    worker.finish(&task, json!({ "parked": { "steps": steps, "awaits": true } })).await;

    // The signal came before the function was parked, and lets it go on nevertheless.
    let task = worker.claim_one().await;
    assert!(task["steps"][0]["due"].as_str() > task["claimed_at"].as_str(), "it still sleeps");
    let newest = worker.say("take-signals", &task, ask(2)).await["newest"].clone();
    let mut take = ask(2);
    take["up_to"] = json!({ "signal": newest, "number": 1 });
    assert_eq!(worker.say("take-signals", &task, take).await["value"], 1);
    let wait = json!({ "for_ms": 0 });
    let timed = json!([open(3, "signal", "paid", wait)]);
    let parked = json!({ "parked": { "steps": timed, "waits": [1], "awaits": true } });
    assert_eq!(worker.finish(&task, parked).await["is_accepted"], true);

    duties(&server).await;
    let task = worker.claim_one().await;
    let timed = &task["steps"][2];
    assert!(timed["due"].as_str() <= task["claimed_at"].as_str(), "its time is over: {timed}");
    assert_eq!(worker.say("take-signals", &task, ask(3)).await["newest"], Value::Null);
    let late = json!({ "failed": { "code": "signal_timeout", "message": "it did not come" } });
    let mut late = done(3, "signal", "paid", late);
    late["change"]["done"]["number"] = json!(2);
    record(&worker, &task, late).await;
    worker.finish(&task, json!({ "parked": { "waits": [1] } })).await;
    assert!(worker.claim().await.is_empty(), "an hour is long");
    let steps = server.get(&format!("/v1/runs/{run}/tasks/only/steps")).await.ok(200);
    let numbers: Vec<&Value> =
        steps["steps"].as_array().unwrap().iter().map(|step| &step["number"]).collect();
    assert_eq!(numbers, [&Value::Null, &json!(1), &json!(2)]);
}

#[tokio::test]
async fn a_function_that_lost_its_task_takes_no_signal_and_starts_no_child() {
    let server = TestServer::start().await;
    server.worker(single("ship")).await;
    let mut worker = server.worker(single("order")).await;
    let run = server.start_run("order", json!(1)).await;
    let task = worker.claim_one().await;
    let signal = json!({ "name": "approved", "value": 1 });
    server.post(&format!("/v1/runs/{run}/signals"), signal).await;
    let ask = json!({ "call": 1, "name": "approved" });
    let newest = worker.say("take-signals", &task, ask.clone()).await["newest"].clone();
    assert_eq!(worker.say("release", &task, json!({})).await["is_accepted"], true);
    let mut take = ask.clone();
    take["up_to"] = json!({ "signal": newest, "number": 1 });
    assert_eq!(worker.say("take-signals", &task, take).await["refusal"], "lease_lost");
    let child = json!({ "call": 1, "workflow": "ship" });
    let refused = worker.say("start-children", &task, child).await;
    assert_eq!((&refused["run"], &refused["refusal"]), (&Value::Null, &json!("lease_lost")));
    let runs = server.get("/v1/runs?workflow=ship").await.ok(200);
    assert_eq!(runs["runs"], json!([]));
    let again = worker.claim_one().await;
    assert_eq!(
        worker.say("take-signals", &again, ask).await["newest"],
        newest,
        "it is still there"
    );
}

#[tokio::test]
async fn children_are_of_the_tenant_and_version_that_is_right_and_may_go_their_own_way() {
    let server = TestServer::start().await;
    let mut carrier = server.worker(single("ship")).await;
    let mut worker = server.worker(single("order")).await;
    let start = json!({ "workflow": "order", "tenant": "acme" });
    let run = server.post("/v1/runs", start).await.ok(201)["id"].as_str().unwrap().to_owned();
    let task = worker.claim_one().await;
    let token = task["token"].clone();
    let child = |place: u32, more: Value| {
        let mut child = json!({ "token": token, "call": 1, "place": place, "workflow": "ship" });
        child.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        child
    };
    let body = json!({ "tasks": [
        child(0, json!({ "metadata": { "windlass.by": "someone else", "a": "b" } })),
        child(1, json!({ "version": 9 })),
        child(1, json!({ "input": [2] })),
        child(2, json!({ "is_detached": true })),
        child(100_000, json!({})),
    ] });
    let born = server.post(&worker.path("start-children"), body).await.ok(200);
    let why = "workflow \"ship\" version 9 does not exist: no worker has registered it";
    assert_eq!(born["tasks"][1]["problem"]["detail"], why);
    let first =
        server.get(&format!("/v1/runs/{}", born["tasks"][0]["run"].as_str().unwrap())).await;
    assert_eq!(first.ok(200)["metadata"], json!({ "a": "b" }), "nobody else says who did it");
    assert_eq!(born["tasks"][4]["problem"]["code"], "WL-0002");
    let runs = [0, 2, 3].map(|place| born["tasks"][place]["run"].as_str().unwrap().to_owned());
    for child in &runs {
        let child = server.get(&format!("/v1/runs/{child}")).await.ok(200);
        assert_eq!((&child["tenant"], &child["version"]), (&json!("acme"), &json!(1)));
    }
    let listed = worker.ask("list-children", &task, json!({ "call": 1, "after": 0 })).await;
    assert_eq!(listed["children"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&listed["children"][0]["place"], &listed["children"][0]["result"]),
        (&json!(1), &Value::Null)
    );
    server.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok(204);
    duties(&server).await;
    let states = [state(&server, &runs[0]).await, state(&server, &runs[2]).await];
    assert_eq!(states, ["cancelled", "running"], "those that are waited for end with the function");
    assert_eq!(carrier.claim_one().await["run"], json!(runs[2]));
    for wrong in [0, 50_001] {
        let body = json!({ "token": token, "call": wrong });
        let detail =
            server.post(&worker.path("count-children"), body).await.problem(422, "WL-0002");
        assert!(detail.starts_with("call: "), "{detail}");
    }
}

#[tokio::test]
async fn steps_of_a_run_that_failed_are_undone_the_last_one_first() {
    let server = TestServer::start().await;
    let two = json!({ "name": "order", "tasks": [{ "name": "pay" },
        { "name": "ship", "after": ["pay"], "retry": { "attempts": 1 } }] });
    let mut worker = server.worker(two).await;
    let run = server.start_run("order", json!(1)).await;
    let pay = worker.claim_one().await;
    record(&worker, &pay, done(1, "undoable", "charge", json!({ "value": "c7" }))).await;
    record(&worker, &pay, done(2, "step", "note", json!({ "value": 0 }))).await;
    worker.finish(&pay, json!({ "succeeded": 1 })).await;
    let ship = worker.claim_one().await;
    record(&worker, &ship, done(1, "undoable", "book", json!({ "value": "b3" }))).await;
    worker.finish(&ship, json!({ "failed": { "message": "no" } })).await;
    assert_eq!(state(&server, &run).await, "failed");

    let mut worker = worker.serving("order~undo");
    let undo = worker.claim_one().await;
    assert_eq!((&undo["task"], &undo["input"]), (&json!("undo"), &json!({ "run": run })));
    let told = worker.ask("read-undo", &undo, json!({})).await;
    let tasks = told["tasks"].as_array().unwrap();
    let names: Vec<&Value> = tasks.iter().map(|task| &task["task"]).collect();
    assert_eq!(names, ["ship", "pay"], "what came last is undone first");
    assert_eq!(tasks[1]["steps"][0]["value"], "c7");
    assert_eq!(tasks[1]["steps"][1]["kind"], "step");
    record(&worker, &undo, done(1, "step", "book", json!({ "value": null }))).await;
    record(&worker, &undo, done(2, "step", "charge", json!({ "value": null }))).await;
    worker.finish(&undo, json!({ "succeeded": null })).await;
    let id = undo["run"].as_str().unwrap();
    assert_eq!(state(&server, id).await, "succeeded");
    let late = worker.ask("read-undo", &undo, json!({})).await;
    assert!(late["refusal"].is_string(), "{late}");
}
