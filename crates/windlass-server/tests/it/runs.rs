//! Runs: started, found, waited for, steered.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_proto::v1;
use windlass_proto::v1::client_service_client::ClientServiceClient;

use crate::support::{TestServer, single, soon};

#[tokio::test]
async fn a_reason_has_a_thousand_characters_at_most() {
    let server = TestServer::start().await;
    server.worker(single("w")).await;
    let run = server.start_run("w", json!(1)).await;
    let path = format!("/v1/runs/{run}/cancel");
    let reason = |length: usize| json!({ "reason": "é".repeat(length) });
    let detail = server.post(&path, reason(1_001)).await.problem(422, "WL-0002");
    assert!(detail.starts_with("reason: "), "{detail}");
    server.post(&path, reason(1_000)).await.ok(204);
}

#[tokio::test]
async fn a_run_is_started_once_for_a_key_and_found_again() {
    let server = TestServer::start().await;
    server.worker(single("mail")).await;
    let body = json!({
        "workflow": "mail", "version": 1, "input": { "to": "anna" }, "tenant": "acme",
        "key": "k", "priority": 7, "metadata": { "a": "b" }, "delay_ms": 5,
    });
    let first = server.post("/v1/runs", body.clone()).await.ok(201);
    let again = server.post("/v1/runs", body.clone()).await.ok(200);
    assert_eq!((&first["id"], &again["is_new"]), (&again["id"], &json!(false)));
    let mut other = body;
    other["input"] = json!(1);
    server.post("/v1/runs", other).await.problem(409, "WL-0005");
    let path = format!("/v1/runs/{}", first["id"].as_str().unwrap());
    let run = server.get(&path).await.ok(200);
    let expected = json!({
        "workflow": "mail", "version": 1, "tenant": "acme", "state": "running", "key": "k",
        "priority": 7, "metadata": { "a": "b" }, "round": 1, "open_tasks": 1,
        "input": { "to": "anna" }, "ended_at": null,
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(run[field], *value, "{field}");
    }
}

#[tokio::test]
async fn a_start_of_what_nobody_made_known_is_refused() {
    let server = TestServer::start().await;
    let body = json!({ "workflow": "mail", "version": 1 });
    let detail = server.post("/v1/runs", body).await.problem(404, "WL-0004");
    assert!(detail.contains("mail"), "{detail}");
    let missing = "/v1/runs/01981c2e-7a40-7c1f-9d57-0242ac120002";
    for path in ["", "/wait", "/tasks", "/tasks/only", "/events", "/why", "/events/stream"] {
        let detail = server.get(&format!("{missing}{path}")).await.problem(404, "WL-0004");
        assert!(detail.contains("01981c2e"), "{detail}");
    }
    for path in ["/cancel", "/retry", "/undo"] {
        server.post(&format!("{missing}{path}"), json!({})).await.problem(404, "WL-0004");
    }
    assert!(server.get("/v1/log").await.ok(200)["entries"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn pages_of_runs_follow_each_other_and_filters_hold() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("mail")).await;
    server.worker(single("other")).await;
    let failed = server.start_run("mail", json!(0)).await;
    worker.run_one(json!({ "failed": { "message": "no" } })).await;
    for number in 1..5 {
        let body = json!({
            "workflow": "mail", "version": 1, "input": number, "tenant": "acme",
            "metadata": { "number": number.to_string() },
        });
        server.post("/v1/runs", body).await.ok(201);
    }
    server.start_run("other", json!(5)).await;
    let mut seen = Vec::new();
    let mut path = "/v1/runs?limit=4".to_owned();
    loop {
        let page = server.get(&path).await.ok(200);
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["id"].clone()));
        assert!(page["runs"].as_array().unwrap().iter().all(|run| run.get("input").is_none()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/runs?limit=4&cursor={next}");
    }
    assert_eq!(seen.len(), 6);
    assert_eq!(seen.last(), Some(&json!(failed)), "the newest come first");
    let count = async |query: &str| {
        let page = server.get(&format!("/v1/runs?{query}")).await.ok(200);
        page["runs"].as_array().unwrap().len()
    };
    assert_eq!(count("workflow=mail").await, 5);
    assert_eq!(count("tenant=acme").await, 4);
    assert_eq!(count("state=failed").await, 1);
    assert_eq!(count("metadata_key=number&metadata_value=3").await, 1);
    for wrong in ["limit=0", "limit=1001", "cursor=w1.1.2", "state=over", "metadata_key=a", "x=1"] {
        let status = server.get(&format!("/v1/runs?{wrong}")).await.status;
        assert!(matches!(status.as_u16(), 400 | 422), "{wrong}: {status}");
    }
}

#[tokio::test]
async fn many_runs_are_started_and_each_is_judged_alone() {
    let server = TestServer::start().await;
    server.worker(single("mail")).await;
    let start =
        |workflow: &str, key: &str| json!({ "workflow": workflow, "version": 1, "key": key });
    let mut long = start("mail", "x");
    long["metadata"] = json!({ "x": "y".repeat(2_000) });
    let runs = json!([start("mail", "a"), start("none", "b"), long, start("mail", "a")]);
    let answer = server.post("/v1/run-batches", json!({ "runs": runs })).await.ok(200);
    let runs = answer["runs"].as_array().unwrap();
    assert_eq!(runs[0]["started"]["is_new"], true);
    assert_eq!(runs[1]["problem"]["code"], "WL-0004");
    assert_eq!(runs[2]["problem"]["code"], "WL-0002");
    assert_eq!(runs[3]["started"]["id"], runs[0]["started"]["id"]);
    let empty = server.post("/v1/run-batches", json!({ "runs": [] })).await;
    assert!(empty.problem(422, "WL-0002").contains("runs"));
    let many = vec![start("mail", "a"); 1_001];
    server.post("/v1/run-batches", json!({ "runs": many })).await.problem(422, "WL-0002");
}

#[tokio::test]
async fn a_wait_ends_with_the_run_or_with_its_time() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("mail")).await;
    let run = server.start_run("mail", Value::Null).await;
    let early = server.get(&format!("/v1/runs/{run}/wait?timeout_ms=1")).await.ok(200);
    assert_eq!(early["state"], "running");
    let path = format!("/v1/runs/{run}/wait?timeout_ms=30000");
    let (ended, ()) = tokio::join!(
        soon("the run has ended", server.get(&path)),
        worker.run_one(json!({ "succeeded": null }))
    );
    assert_eq!(ended.ok(200)["state"], "succeeded");
    let late = server.get(&format!("/v1/runs/{run}/wait?timeout_ms=30001")).await;
    assert!(late.problem(422, "WL-0002").contains("timeout_ms"));
}

#[tokio::test]
async fn runs_are_cancelled_and_retried_and_the_log_says_so() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("mail")).await;
    let failed = server.start_run("mail", Value::Null).await;
    worker.run_one(json!({ "failed": { "message": "no", "code": "declined" } })).await;
    let retry = format!("/v1/runs/{failed}/retry");
    assert_eq!(server.post(&retry, json!({ "round": 1 })).await.ok(200)["round"], 2);
    assert_eq!(server.post(&retry, json!({ "round": 1 })).await.ok(200)["round"], 2);
    server.post(&retry, json!({})).await.problem(409, "WL-0005");
    server.post(&retry, json!({ "round": 0 })).await.problem(422, "WL-0002");
    let cancel = format!("/v1/runs/{failed}/cancel");
    server.post(&cancel, json!({ "reason": "a test" })).await.ok(204);
    server.raw(hyper::Method::POST, &cancel, "").await.ok(204);
    server.post(&format!("/v1/runs/{failed}/undo"), json!({})).await.problem(409, "WL-0005");
    for reason in ["x".repeat(1_001), "a\0b".to_owned()] {
        let answer = server.post(&cancel, json!({ "reason": reason })).await;
        assert!(answer.problem(422, "WL-0002").contains("reason"));
    }
    let log = server.get(&format!("/v1/log?run={failed}")).await.ok(200);
    let entries = log["entries"].as_array().unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    // The last retry and the undo were refused, so that they have two lines each.
    let expected = [
        "undo_run",
        "undo_run",
        "cancel_run",
        "cancel_run",
        "retry_run",
        "retry_run",
        "retry_run",
        "retry_run",
    ];
    assert_eq!(actions, expected);
    assert_eq!(entries[0]["detail"]["refused_entry"], entries[1]["id"]);
    assert_eq!(entries[3]["detail"], json!({ "reason": "a test" }));
    assert_eq!(entries[0]["by"], "insecure-dev");
    let page = server.get("/v1/log?limit=2&action=retry_run").await.ok(200);
    let next = page["next"].as_str().expect("there is another");
    let rest = server.get(&format!("/v1/log?action=retry_run&cursor={next}")).await.ok(200);
    assert_eq!(rest["entries"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn tasks_and_history_come_in_pages_and_why_says_what_is_missing() {
    let server = TestServer::start().await;
    let workflow = json!({ "name": "order", "tasks": [
        { "name": "charge/é" }, { "name": "ship", "after": ["charge/é"] }] });
    let mut worker = server.worker(workflow).await;
    let run = server.start_run("order", json!({})).await;
    let path = format!("/v1/runs/{run}");
    let why = server.get(&format!("{path}/why")).await.ok(200);
    assert_eq!(why["tasks"][0]["reasons"][0]["reason"], "ready", "{why}");
    worker.run_one(json!({ "succeeded": { "paid": 1 } })).await;
    let first = server.get(&format!("{path}/tasks?limit=1")).await.ok(200);
    assert_eq!(first["tasks"][0]["output"], json!({ "paid": 1 }));
    let next = first["next"].as_str().expect("there is another");
    let rest = server.get(&format!("{path}/tasks?cursor={next}")).await.ok(200);
    assert_eq!((&rest["tasks"][0]["name"], &rest["next"]), (&json!("ship"), &Value::Null));
    let charge = server.get(&format!("{path}/tasks/charge%2F%C3%A9")).await.ok(200);
    assert_eq!((&charge["state"], &charge["fence"]), (&json!("succeeded"), &json!("1")));
    let why = server.get(&format!("{path}/tasks/ship/why")).await.ok(200);
    assert_eq!(why["tasks"][0]["name"], "ship");
    server.get(&format!("{path}/tasks/none")).await.problem(404, "WL-0004");
    server.get(&format!("{path}/tasks/none/why")).await.problem(404, "WL-0004");
    let all = server.get(&format!("{path}/events")).await.ok(200);
    let all = all["events"].as_array().unwrap();
    let kinds: Vec<_> = all.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["run_started", "queued", "started", "succeeded", "queued"]);
    let first = server.get(&format!("{path}/events?limit=2")).await.ok(200);
    let next = first["next"].as_str().expect("there are more");
    let rest = server.get(&format!("{path}/events?cursor={next}")).await.ok(200);
    assert_eq!(rest["events"].as_array().unwrap()[..], all[2..]);
}

#[tokio::test]
async fn signals_are_sent_once_to_runs_and_to_keys() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("mail")).await;
    let run = server.start_run("mail", Value::Null).await;
    let path = format!("/v1/runs/{run}/signals");
    let id = "0198a000-0000-4000-8000-000000000001";
    let signal = json!({ "name": "go", "value": { "a": 1 }, "id": id });
    for _ in 0..2 {
        assert_eq!(server.post(&path, signal.clone()).await.ok(200)["id"], id);
    }
    let key = json!({ "key": "order-7", "name": "paid", "tenant": "acme", "keep_for_ms": 1000 });
    server.post("/v1/signals", key.clone()).await.ok(200);
    let mut never = key;
    never["keep_for_ms"] = json!(0);
    server.post("/v1/signals", never).await.problem(422, "WL-0002");
    worker.run_one(json!({ "succeeded": null })).await;
    server.post(&path, json!({ "name": "late" })).await.problem(409, "WL-0005");
    server.post(&path, json!({ "name": "" })).await.problem(422, "WL-0002");
}

#[tokio::test]
async fn what_is_archived_is_found_when_its_run_is_gone() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("mail")).await;
    let run = server.start_run("mail", json!("in")).await;
    worker.run_one(json!({ "succeeded": "out" })).await;
    let rule = json!({ "state": "succeeded", "keep_for_ms": 0, "archives": true });
    server.put("/v1/retention", rule).await.ok(204);
    soon("the run goes", async {
        while server.windlass.store().prune(100).await.unwrap().moved == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    server.get(&format!("/v1/runs/{run}")).await.problem(404, "WL-0004");
    let archived = server.get(&format!("/v1/archived-runs/{run}")).await.ok(200);
    assert_eq!(
        (&archived["state"], &archived["body"]["input"]),
        (&json!("succeeded"), &json!("in"))
    );
    let other = "/v1/archived-runs/01981c2e-7a40-7c1f-9d57-0242ac120002";
    server.get(other).await.problem(404, "WL-0004");
}

#[tokio::test]
async fn a_start_without_a_version_is_of_the_newest_that_is_known() {
    let server = TestServer::start().await;
    let version_of = async |run: &Value| {
        let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
        server.get(&path).await.ok(200)["version"].clone()
    };
    let start = json!({ "workflow": "mail", "input": 1, "key": "k" });
    let detail = server.post("/v1/runs", start.clone()).await.problem(404, "WL-0004");
    assert_eq!(detail, "workflow \"mail\" does not exist: no worker has registered it");
    server.worker(single("mail")).await;
    let first = server.post("/v1/runs", start.clone()).await.ok(201);
    assert_eq!(version_of(&first).await, 1);
    let mut newer = single("mail");
    newer["version"] = json!(12);
    server.worker(newer.clone()).await;
    newer["version"] = json!(3);
    server.worker(newer).await;
    let again = server.post("/v1/runs", start).await.ok(200);
    assert_eq!(again["id"], first["id"], "its key is that of the run of version 1");
    let plain = json!({ "workflow": "mail" });
    let named = json!({ "workflow": "mail", "version": 3 });
    let missing = json!({ "workflow": "post" });
    let runs = json!({ "runs": [plain, named, missing, plain] });
    let batch = server.post("/v1/run-batches", runs).await.ok(200);
    for (place, version) in [(0, 12), (1, 3), (3, 12)] {
        assert_eq!(version_of(&batch["runs"][place]["started"]).await, version);
    }
    assert_eq!(batch["runs"][2]["problem"]["code"], "WL-0004");
}

#[tokio::test]
async fn workflows_that_are_known_are_listed_with_their_definitions() {
    let server = TestServer::start().await;
    let charge = json!({ "name": "charge", "limits": [
        { "rate": { "count": 5, "per_ms": 1000 }, "field": "customer" }] });
    let order =
        json!({ "name": "order", "tasks": [charge, { "name": "ship", "after": ["charge"] }] });
    server.worker(order).await;
    let mut newer = single("mail");
    server.worker(newer.clone()).await;
    newer["version"] = json!(2);
    server.worker(newer).await;
    let first = server.get("/v1/workflows?limit=2").await.ok(200);
    let told = |page: &Value| -> Vec<(Value, Value)> {
        let workflows = page["workflows"].as_array().unwrap().iter();
        workflows
            .map(|it| (it["definition"]["name"].clone(), it["definition"]["version"].clone()))
            .collect()
    };
    assert_eq!(told(&first), [(json!("mail"), json!(2)), (json!("mail"), json!(1))]);
    let next = first["next"].as_str().expect("there is another");
    let rest = server.get(&format!("/v1/workflows?cursor={next}")).await.ok(200);
    assert_eq!((told(&rest), &rest["next"]), (vec![(json!("order"), json!(1))], &Value::Null));
    let tasks = &rest["workflows"][0]["definition"]["tasks"];
    assert_eq!(tasks[0]["limits"][0]["rate"]["count"], 5);
    assert_eq!(tasks[1]["after"], json!(["charge"]));
    let only = server.get("/v1/workflows?name=order").await.ok(200);
    assert_eq!(told(&only).len(), 1);
    for wrong in ["limit=0", "limit=101", "cursor=f1.0.61", "cursor=r1.1"] {
        server.get(&format!("/v1/workflows?{wrong}")).await.problem(422, "WL-0002");
    }
}

#[tokio::test]
async fn pages_of_large_outputs_end_early_and_leave_none_out() {
    const TASKS: usize = 20;
    let server = TestServer::start().await;
    let names: Vec<String> = (0..TASKS).map(|task| format!("t{task}")).collect();
    let tasks: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    let mut worker = server.worker(json!({ "name": "w", "tasks": tasks })).await;
    let run = server.start_run("w", Value::Null).await;
    let output = "x".repeat(900_000);
    for _ in 0..TASKS / 10 {
        for task in worker.claim().await {
            worker.finish(&task, json!({ "succeeded": output })).await;
        }
    }
    let expected: BTreeSet<String> = names.into_iter().collect();

    let (mut found, mut pages, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let page = server.get(&format!("/v1/runs/{run}/tasks?limit=1000{cursor}")).await;
        assert!(page.text.len() < 20 << 20, "{} bytes", page.text.len());
        let page = page.ok(200);
        let tasks = page["tasks"].as_array().expect("it is a list").iter();
        found.extend(tasks.map(|task| task["name"].as_str().expect("it has one").to_owned()));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert!(pages > 1, "{pages} pages");
    assert_eq!(
        (found.len(), found.into_iter().collect::<BTreeSet<_>>()),
        (TASKS, expected.clone())
    );

    // The limit of messages is that of gRPC, 4 MiB.
    let mut client = ClientServiceClient::connect(format!("http://{}", server.address))
        .await
        .expect("it listens");
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let request = v1::ListTasksRequest { run: run.clone(), after, limit: Some(1_000) };
        let page = client.list_tasks(request).await.expect("it is small enough").into_inner();
        after = page.tasks.last().map(|task| task.index);
        found.extend(page.tasks.into_iter().map(|task| task.name));
        if !page.has_more {
            break;
        }
    }
    assert_eq!((found.len(), found.into_iter().collect::<BTreeSet<_>>()), (TASKS, expected));
}
