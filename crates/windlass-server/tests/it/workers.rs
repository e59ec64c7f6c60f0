//! Workers in any language: join, claim, say what came of it.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::Timestamp;
use windlass::store::BATCH_MAX;

use crate::support::{TestServer, single, soon};

#[tokio::test]
async fn a_worker_joins_claims_and_finishes_a_run_of_two_tasks() {
    let server = TestServer::start().await;
    let workflow = json!({ "name": "greet", "tasks": [
        { "name": "compose", "timeout_ms": 5000 },
        { "name": "send", "after": ["compose"] }] });
    let mut worker = server.worker(workflow).await;
    let run = server.start_run("greet", json!({ "name": "sailor" })).await;
    let compose = worker.claim_one().await;
    assert_eq!(compose["input"], json!({ "name": "sailor" }));
    assert_eq!((&compose["task"], &compose["attempt"]), (&json!("compose"), &json!(1)));
    assert_eq!((&compose["timeout_ms"], &compose["attempts_max"]), (&json!(5000), &json!(5)));
    assert!(worker.claim().await.is_empty(), "the other one waits");
    let outcome = json!({ "succeeded": "Hello, sailor!" });
    assert_eq!(worker.finish(&compose, outcome.clone()).await["is_accepted"], true);
    assert_eq!(worker.finish(&compose, outcome).await["is_accepted"], true, "the answer was lost");
    let send = worker.claim_one().await;
    assert_eq!(send["parents"][0]["output"], "Hello, sailor!");
    assert_eq!(send["parents"][0]["index"], 0);
    worker.finish(&send, json!("skipped")).await;
    let run = server.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(run["state"], "succeeded");
    let drain = async || server.raw(hyper::Method::POST, &worker.path("drain"), "").await;
    drain().await.ok(204);
    let listed = server.get("/v1/workers").await.ok(200);
    assert_eq!(listed["workers"][0]["state"], "draining");
    assert_eq!(listed["workers"][0]["workflows"], json!([{ "name": "greet", "version": 1 }]));
    let beat = json!({ "settled": 0, "held": [] }).to_string();
    let beat = server.raw(hyper::Method::POST, &worker.path("heartbeat"), beat).await.ok(200);
    assert_eq!(beat["should_drain"], true);
    server.delete(&format!("/v1/workers/{}", worker.id)).await.ok(204);
    assert!(server.get("/v1/workers").await.ok(200)["workers"].as_array().unwrap().is_empty());
    let dead = server.get("/v1/workers?with_dead=true").await.ok(200);
    assert_eq!(dead["workers"][0]["state"], "dead");
    assert!(drain().await.problem(404, "WL-0004").contains(&worker.id));
    let claim = worker.next_claim(0);
    server.post(&worker.path("claim"), claim).await.problem(410, "WL-0006");
}

#[tokio::test]
async fn a_failure_is_tried_again_by_the_policy_of_its_task() {
    let server = TestServer::start().await;
    let retry = json!({ "attempts": 3, "first_delay_ms": 10, "factor": 1000, "jitter": 0,
        "delay_max_ms": 20_000, "never_for": ["declined"] });
    let workflow = json!({ "name": "w", "tasks": [{ "name": "only", "retry": retry }] });
    let mut worker = server.worker(workflow).await;
    let run = server.start_run("w", Value::Null).await;
    let state =
        async |run: &str| server.get(&format!("/v1/runs/{run}")).await.ok(200)["state"].clone();
    for (attempt, pause_ms) in [(1, 10), (2, 10_000)] {
        let task = soon("it can be claimed", async {
            loop {
                server.windlass.store().promote_due(BATCH_MAX).await.unwrap();
                if let Some(task) = worker.claim().await.pop() {
                    break task;
                }
            }
        })
        .await;
        assert_eq!(task["attempt"], attempt);
        if attempt == 2 {
            assert_eq!(task["last_failure"]["message"], "no luck");
        }
        worker.finish(&task, json!({ "failed": { "message": "no luck" } })).await;
        assert_eq!(state(&run).await, "running");
        let events = server.get(&format!("/v1/runs/{run}/events")).await.ok(200);
        let last = events["events"].as_array().unwrap().last().unwrap().clone();
        let time = |field: &str| last[field].as_str().unwrap().parse::<Timestamp>().unwrap();
        let pause = time("until").since(time("at"));
        assert_eq!(pause, Duration::from_millis(pause_ms), "{last}");
    }
    for failure in [
        json!({ "message": "no", "code": "declined" }),
        json!({ "message": "no", "is_retryable": false }),
    ] {
        let run = server.start_run("w", Value::Null).await;
        worker.run_one(json!({ "failed": failure })).await;
        assert_eq!(state(&run).await, "failed");
    }
}

#[tokio::test]
async fn a_claim_is_held_until_there_is_a_task() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let (path, body) = (worker.path("claim"), worker.next_claim(30_000));
    let start = async {
        // The claim has looked, and found nothing: whoever begins to wait is seen by nobody.
        tokio::task::yield_now().await;
        server.start_run("w", json!(1)).await
    };
    let claiming = soon("the claim is answered", server.post(&path, body));
    let (answer, run) = tokio::join!(claiming, start);
    assert_eq!(answer.ok(200)["tasks"][0]["run"], run);
    let early = worker.next_claim(1);
    let none = server.post(&worker.path("claim"), early).await.ok(200);
    assert_eq!(none["tasks"], json!([]), "it was not held for longer than it said");
}

#[tokio::test]
async fn a_claim_that_comes_twice_has_no_tasks_and_those_of_a_lost_answer_go_back() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    server.start_run("w", json!(1)).await;
    let body = worker.next_claim(0);
    let first = server.post(&worker.path("claim"), body.clone()).await.ok(200);
    assert_eq!(first["tasks"].as_array().unwrap().len(), 1);
    let again = server.post(&worker.path("claim"), body).await.ok(200);
    assert_eq!(again["tasks"], json!([]));
    assert!(worker.claim().await.is_empty(), "it is leased");
    let token = first["tasks"][0]["token"].clone();
    let path = worker.path("heartbeat");
    let held = json!({ "settled": 1, "held": [token] });
    assert_eq!(server.post(&path, held).await.ok(200)["lost"], json!([]));
    let lost = json!({ "settled": 1, "held": [] });
    server.post(&path, lost).await.ok(200);
    let task = worker.claim_one().await;
    assert_eq!(task["attempt"], 1, "nobody ran it");
    let stale = worker.finish(&first["tasks"][0], json!({ "succeeded": 1 })).await;
    assert_eq!(stale, json!({ "is_accepted": false, "refusal": "lease_lost" }));
    let held = json!({ "settled": 1, "held": [first["tasks"][0]["token"]] });
    let answer = server.post(&path, held).await.ok(200);
    assert_eq!(answer["lost"][0]["token"], first["tasks"][0]["token"]);
    assert_eq!(answer["lost"][0]["why"], "lease_lost");
}

#[tokio::test]
async fn tasks_of_a_held_claim_whose_answer_is_lost_go_back() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let (path, body) = (worker.path("claim"), worker.next_claim(30_000));
    let start = async {
        // The claim finds nothing at first: its task comes with a later look.
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.start_run("w", json!(1)).await
    };
    let claiming = soon("the claim is answered", server.post(&path, body));
    let (answer, _) = tokio::join!(claiming, start);
    assert_eq!(answer.ok(200)["tasks"].as_array().unwrap().len(), 1);
    let lost = json!({ "settled": 1, "held": [] });
    server.post(&worker.path("heartbeat"), lost).await.ok(200);
    assert_eq!(worker.claim_one().await["attempt"], 1, "nobody ran it");
}

#[tokio::test]
async fn the_first_claim_has_the_number_one() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    server.start_run("w", json!(1)).await;
    let mut claim = worker.next_claim(0);
    claim["number"] = json!(0);
    let detail = server.post(&worker.path("claim"), claim).await.problem(422, "WL-0002");
    assert!(detail.starts_with("number: 0"), "{detail}");
}

#[tokio::test]
async fn checkpoints_progress_and_releases_are_kept() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let run = server.start_run("w", json!(1)).await;
    let task = worker.claim_one().await;
    let kept = worker.say("checkpoint", &task, json!({ "value": { "at": 7 } })).await;
    assert_eq!(kept["is_accepted"], true);
    let note = json!({ "token": task["token"], "note": "half" });
    let beat = json!({ "settled": 1, "held": [task["token"]], "progress": [note] });
    server.post(&worker.path("heartbeat"), beat).await.ok(200);
    let seen = server.get(&format!("/v1/runs/{run}/tasks/only")).await.ok(200);
    assert_eq!((&seen["progress"], &seen["worker"]), (&json!("half"), &json!(worker.id)));
    assert_eq!(worker.say("release", &task, json!({})).await["is_accepted"], true);
    let again = worker.claim_one().await;
    assert_eq!((&again["attempt"], &again["checkpoint"]), (&json!(1), &json!({ "at": 7 })));
}

#[tokio::test]
async fn a_function_remembers_its_steps_and_is_parked_while_it_sleeps() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let run = server.start_run("w", json!(1)).await;
    let task = worker.claim_one().await;
    let done = json!({ "call": 1, "name": "charge", "kind": "step",
        "change": { "done": { "number": 1, "result": { "value": { "paid": true } } } } });
    let kept = worker.say("record", &task, json!({ "steps": [done.clone()] })).await;
    assert_eq!(kept["is_accepted"], true);
    let mut other = done;
    other["change"]["done"]["result"] = json!({ "failed": { "message": "no" } });
    let refused = worker.say("record", &task, json!({ "steps": [other] })).await;
    assert_eq!(refused["refusal"], "invalid", "a result never changes");
    let sleep = json!({ "call": 2, "name": "nap", "kind": "sleep",
        "change": { "open": { "wait": { "for_ms": 0 } } } });
    worker.finish(&task, json!({ "parked": { "steps": [sleep] } })).await;
    let steps = server.get(&format!("/v1/runs/{run}/tasks/only/steps?limit=1")).await.ok(200);
    assert_eq!(steps["steps"][0]["value"], json!({ "paid": true }));
    let next = steps["next"].as_str().expect("there is another");
    let rest = format!("/v1/runs/{run}/tasks/only/steps?cursor={next}");
    assert_eq!(server.get(&rest).await.ok(200)["steps"][0]["is_done"], false);
    server.windlass.store().promote_due(BATCH_MAX).await.unwrap();
    let again = worker.claim_one().await;
    assert_eq!(again["steps"][0]["value"], json!({ "paid": true }));
    worker.finish(&again, json!({ "continued": { "afresh": 1 } })).await;
    let afresh = worker.claim_one().await;
    assert_eq!((&afresh["steps"], &afresh["input"]), (&json!([]), &json!({ "afresh": 1 })));
}

#[tokio::test]
async fn a_token_of_another_or_a_changed_one_is_refused() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let other = server.worker(single("w")).await;
    server.start_run("w", json!(1)).await;
    let task = worker.claim_one().await;
    let token = task["token"].as_str().unwrap();
    let finish =
        |token: &str| json!({ "tasks": [{ "token": token, "outcome": { "succeeded": 1 } }] });
    let detail = server.post(&other.path("finish"), finish(token)).await.problem(422, "WL-0002");
    assert!(detail.contains("another worker's"), "{detail}");
    for wrong in ["", "t1.", "t9.00", &token[..token.len() - 1], &token.to_uppercase()] {
        let answer = server.post(&worker.path("finish"), finish(wrong)).await;
        assert!(answer.problem(422, "WL-0002").contains("token"), "{wrong}");
    }
    assert_eq!(worker.finish(&task, json!({ "succeeded": 1 })).await["is_accepted"], true);
}

#[tokio::test]
async fn a_definition_that_makes_no_sense_is_refused_by_task_and_field() {
    let server = TestServer::start().await;
    let join = async |workflow: Value| {
        let body = json!({ "name": "w", "slots": 1, "workflows": [workflow] });
        server.post("/v1/workers", body).await
    };
    let cyclic = json!({ "name": "loop", "tasks": [
        { "name": "a", "after": ["b"] }, { "name": "b", "after": ["a"] }] });
    let detail = join(cyclic).await.problem(422, "WL-0001");
    assert_eq!(detail, r#"workflow "loop" has a cycle: "a" → "b" → "a""#);
    let retry = json!({ "name": "w", "tasks": [{ "name": "a", "retry": { "jitter": 2 } }] });
    let detail = join(retry).await.problem(422, "WL-0001");
    assert!(detail.contains("\"a\"") && detail.contains("jitter"), "{detail}");
    let many = json!({ "name": "w", "tasks": [{ "name": "a",
        "retry": { "never_for": vec!["x"; 101] } }] });
    assert!(join(many).await.problem(422, "WL-0001").contains("never_for"));
    let unknown = json!({ "name": "w", "tasks": [{ "name": "a", "retires": {} }] });
    let detail = join(unknown).await.problem(422, "WL-0002");
    assert!(detail.contains("retires") && detail.contains("column"), "{detail}");
    join(single("w")).await.ok(201);
    let other = json!({ "name": "w", "tasks": [{ "name": "another" }] });
    let detail = join(other).await.problem(409, "WL-0005");
    assert!(detail.contains("another"), "{detail}");
    for (field, value) in [("slots", json!(0)), ("lease_ms", json!(999)), ("queues", json!([]))] {
        let mut body = json!({ "name": "w", "slots": 1, "workflows": [single("w")] });
        body[field] = value;
        let detail = server.post("/v1/workers", body).await.problem(422, "WL-0002");
        assert!(detail.starts_with(field), "{detail}");
    }
}

#[tokio::test]
async fn a_claim_gives_no_more_tasks_than_the_worker_has_free_slots() {
    let server = TestServer::start().await;
    let body = json!({ "name": "w", "slots": 1, "workflows": [single("w")] });
    let joined = server.post("/v1/workers", body).await.ok(201);
    let path = |verb: &str| format!("/v1/workers/{}/{verb}", joined["id"].as_str().unwrap());
    for _ in 0..3 {
        server.start_run("w", Value::Null).await;
    }
    let claim = |number: u32, workflow: &str, version: u32| {
        let workflows = json!([{ "name": workflow, "version": version }]);
        json!({ "number": number, "limit": 3, "wait_ms": 0, "workflows": workflows })
    };
    let tasks = server.post(&path("claim"), claim(1, "w", 1)).await.ok(200);
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 1, "{tasks}");
    let full = server.post(&path("claim"), claim(2, "w", 1)).await.problem(409, "WL-0005");
    assert!(full.contains("it holds 1 of at most 1 tasks"), "{full}");
    let finish = json!({ "tasks": [
        { "token": tasks["tasks"][0]["token"], "outcome": { "succeeded": 1 } }] });
    server.post(&path("finish"), finish).await.ok(200);
    let tasks = server.post(&path("claim"), claim(3, "w", 1)).await.ok(200);
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 1, "its slot is free again");
    // A workflow that it did not join with, and a version that is not registered.
    server
        .post("/v1/workers", json!({ "name": "x", "slots": 1, "workflows": [single("x")] }))
        .await
        .ok(201);
    let other = server.post(&path("claim"), claim(4, "x", 1)).await.problem(409, "WL-0005");
    assert!(other.contains("did not join with workflow \"x\" version 1"), "{other}");
    let unknown = server.post(&path("claim"), claim(5, "w", 7)).await.problem(404, "WL-0004");
    assert!(unknown.contains("workflow \"w\" version 7") && unknown.contains("register it"));
}
