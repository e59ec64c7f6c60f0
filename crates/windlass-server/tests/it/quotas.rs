//! Whoever asks for more than its quota is told when to come again, and nobody else notices.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::RETRY_AFTER;
use serde_json::{Value, json};
use windlass::clock::VirtualClock;
use windlass::remote::{RemoteOptions, RemoteStore};
use windlass::store::{
    BATCH_MAX, MemoryStore, NewKeySignal, NewRun, Quota, QuotaStore as _, ScheduleStore as _,
    Started, Store as _, StoreError,
};
use windlass::{Payload, Role, RunId, Tenant, Version, Windlass, WorkflowName};
use windlass_core::{Priority, SignalId, SignalKey, StepName, Timestamp};
use windlass_server::{Access, ServerOptions};

use crate::support::{Answer, TestServer, single};
use crate::tokens::token_of;

/// A server that knows `w`, of one task, and `dag`, of three.
async fn server() -> TestServer {
    let server = TestServer::start().await;
    server.worker(single("w")).await;
    let task = |name: &str| json!({ "name": name });
    let dag = json!({ "name": "dag", "tasks": [task("a"), task("b"), task("c")] });
    server.worker(dag).await;
    server
}

impl TestServer {
    async fn quota(&self, quota: Value) {
        self.put("/v1/quotas", quota).await.ok(204);
    }

    async fn start_for(&self, tenant: &str, workflow: &str, input: Value) -> Answer {
        let body = json!({ "workflow": workflow, "tenant": tenant, "input": input });
        self.post("/v1/runs", body).await
    }

    fn remote(&self) -> RemoteStore {
        RemoteStore::connect(format!("http://{}", self.address)).expect("it is an address")
    }

    async fn count_runs(&self, tenant: &str) -> usize {
        let runs = self.get(&format!("/v1/runs?tenant={tenant}")).await.ok(200);
        runs["runs"].as_array().expect("a list").len()
    }
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("it is a name")
}

fn new_run(whose: &str) -> NewRun {
    NewRun {
        id: RunId::from_parts(std::time::SystemTime::now().into(), fastrand::u128(..)),
        workflow: WorkflowName::new("w").expect("it is a name"),
        version: Version::FIRST,
        tenant: tenant(whose),
        input: Payload::default(),
        key: None,
        delay: Duration::ZERO,
        priority: Priority::default(),
        metadata: Default::default(),
    }
}

/// What one says that is refused for a quota, and in how many seconds to come again.
fn limited(answer: &Answer) -> (String, u64) {
    let detail = answer.problem(429, "WL-0016");
    assert_eq!(answer.json()["is_retryable"], true);
    let after = answer.headers[RETRY_AFTER].to_str().expect("it is text");
    (detail, after.parse().expect("it is a number"))
}

#[tokio::test]
async fn starts_beyond_a_rate_are_told_when_to_come_again_and_other_tenants_start() {
    let server = server().await;
    server.quota(json!({ "tenant": "acme", "starts_per_second": 3 })).await;
    for _ in 0..3 {
        server.start_for("acme", "w", Value::Null).await.ok(201);
    }
    let (detail, after) = limited(&server.start_for("acme", "w", Value::Null).await);
    assert_eq!(detail, r#"tenant "acme" is over its quota of 3 starts per second"#);
    assert_eq!(after, 1);
    server.start_for("other", "w", Value::Null).await.ok(201);
    assert_eq!(server.count_runs("acme").await, 3);
}

#[tokio::test]
async fn starts_over_grpc_are_judged_one_by_one_with_the_same_rate() {
    let server = server().await;
    let remote = server.remote();
    let quota = windlass::store::Quota {
        starts_per_second: Some(3),
        ..windlass::store::Quota::of(Some(tenant("acme")))
    };
    remote.set_quota(quota).await.expect("it makes sense");
    server.start_for("acme", "w", Value::Null).await.ok(201);
    let whose = ["acme", "acme", "other", "acme", "acme", "other"];
    let answers = remote.start_runs(whose.map(new_run).to_vec()).await.expect("it is answered");
    let is_started = |one: &Result<Started, StoreError>| one.is_ok();
    let started: Vec<bool> = answers.iter().map(is_started).collect();
    assert_eq!(started, [true, true, true, false, false, true]);
    let Err(StoreError::Limited { why, retry_after }) = &answers[3] else { panic!("{answers:?}") };
    assert!(why.contains("3 starts per second"), "{why}");
    assert!(*retry_after > Duration::ZERO && *retry_after <= Duration::from_secs(1));
    let answers = remote.start_runs(vec![new_run("acme")]).await.expect("it is answered");
    assert!(matches!(answers[..], [Err(StoreError::Limited { .. })]), "{answers:?}");
}

#[tokio::test]
async fn a_quota_that_is_cleared_over_grpc_holds_no_longer() {
    let server = server().await;
    let remote = server.remote();
    let of = Some(tenant("acme"));
    let quota = Quota { backlog_max: Some(1), ..Quota::of(of.clone()) };
    remote.set_quota(quota).await.expect("it makes sense");
    server.start_for("acme", "w", Value::Null).await.ok(201);
    limited(&server.start_for("acme", "w", Value::Null).await);
    assert_eq!(remote.clear_quota(of).await, Ok(true));
    server.start_for("acme", "w", Value::Null).await.ok(201);
}

#[tokio::test]
async fn batches_over_http_are_judged_one_by_one() {
    let server = server().await;
    server.quota(json!({ "starts_per_second": 2 })).await;
    let start = json!({ "workflow": "w", "tenant": "acme" });
    let answer = server.post("/v1/run-batches", json!({ "runs": vec![start; 3] })).await.ok(200);
    let codes: Vec<&Value> =
        answer["runs"].as_array().unwrap().iter().map(|one| &one["problem"]["code"]).collect();
    assert_eq!(codes, [&Value::Null, &Value::Null, &json!("WL-0016")]);
}

#[tokio::test]
async fn nothing_is_started_beyond_a_backlog_until_some_of_it_is_done() {
    let server = server().await;
    server.quota(json!({ "tenant": "acme", "backlog_max": 2 })).await;
    for _ in 0..2 {
        server.start_for("acme", "w", Value::Null).await.ok(201);
    }
    let (detail, _) = limited(&server.start_for("acme", "w", Value::Null).await);
    assert_eq!(detail, r#"tenant "acme" has 2 tasks that wait, its quota is 2"#);
    server.start_for("other", "w", Value::Null).await.ok(201);
    let mut worker = server.worker(single("w")).await;
    assert_eq!(worker.claim().await.len(), 3);
    let started = async { while server.start_for("acme", "w", Value::Null).await.status != 201 {} };
    crate::support::soon("there is room when some are claimed", started).await;
}

#[tokio::test]
async fn a_value_beyond_a_quota_is_too_large_whoever_sends_it() {
    let server = server().await;
    server.quota(json!({ "tenant": "acme", "payload_bytes_max": 10 })).await;
    let fits = json!("x".repeat(8));
    server.start_for("acme", "w", fits.clone()).await.ok(201);
    let answer = server.start_for("acme", "w", json!("x".repeat(9))).await;
    let detail = answer.problem(413, "WL-0003");
    assert_eq!(detail, r#"the input has 11 bytes, the quota of tenant "acme" is 10"#);
    server.start_for("other", "w", json!("x".repeat(9))).await.ok(201);
    let signal =
        |value: Value| json!({ "key": "k", "name": "n", "tenant": "acme", "value": value });
    server.post("/v1/signals", signal(fits)).await.ok(200);
    server.post("/v1/signals", signal(json!("x".repeat(9)))).await.problem(413, "WL-0003");
    let run = server.start_for("acme", "w", Value::Null).await.ok(201);
    let path = format!("/v1/runs/{}/signals", run["id"].as_str().unwrap());
    let body = json!({ "name": "n", "value": "x".repeat(9) });
    server.post(&path, body).await.problem(413, "WL-0003");
    let cadence = json!({ "every": { "interval_ms": 60_000 } });
    let schedule =
        json!({ "workflow": "w", "version": 1, "cadence": cadence, "input": "x".repeat(9) });
    let answer = server.put("/v1/schedules/s?tenant=acme", schedule).await;
    assert!(answer.status == 413, "{answer:?}");
    let signal = NewKeySignal {
        id: SignalId::from_random(1),
        to: windlass::store::Mailbox {
            tenant: tenant("acme"),
            key: SignalKey::new("k").unwrap(),
            name: StepName::new("n").unwrap(),
        },
        value: Payload::encode(&"x".repeat(9)).unwrap(),
        keep_for: Duration::from_secs(60),
    };
    let refused = server.remote().signal_key(signal).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
}

#[tokio::test]
async fn bytes_beyond_a_rate_are_told_when_to_come_again() {
    let server = server().await;
    server.quota(json!({ "tenant": "acme", "payload_bytes_per_second": 100 })).await;
    // Larger than a second's: let through, and paid for.
    server.start_for("acme", "w", json!("x".repeat(998))).await.ok(201);
    let (detail, after) = limited(&server.start_for("acme", "w", json!("x")).await);
    let quota = "100 bytes of inputs and signals per second";
    assert_eq!(detail, format!("tenant \"acme\" is over its quota of {quota}"));
    assert!((8..=10).contains(&after), "{after}");
    let signal = json!({ "key": "k", "name": "n", "tenant": "acme", "value": 1 });
    limited(&server.post("/v1/signals", signal).await);
}

#[tokio::test]
async fn one_schedule_too_many_is_refused_and_those_there_may_be_changed() {
    let server = server().await;
    server.quota(json!({ "tenant": "acme", "schedules_max": 2 })).await;
    let schedule = |every: u64| json!({ "workflow": "w", "version": 1, "cadence": { "every": { "interval_ms": every } } });
    for name in ["one", "two"] {
        server.put(&format!("/v1/schedules/{name}?tenant=acme"), schedule(60_000)).await.ok(200);
    }
    let (detail, after) =
        limited(&server.put("/v1/schedules/three?tenant=acme", schedule(60_000)).await);
    assert_eq!(detail, r#"tenant "acme" has 2 schedules, its quota is 2"#);
    assert_eq!(after, 60);
    server.put("/v1/schedules/two?tenant=acme", schedule(70_000)).await.ok(200);
    server.put("/v1/schedules/three?tenant=other", schedule(60_000)).await.ok(200);
    let remote = server.remote();
    let record = remote.get_schedule(windlass::store::ScheduleKey {
        tenant: tenant("acme"),
        name: windlass_core::ScheduleName::new("two").unwrap(),
    });
    let mut schedule_four = record.await.unwrap().unwrap().schedule;
    schedule_four.key.name = windlass_core::ScheduleName::new("four").unwrap();
    let refused = remote.put_schedule(schedule_four).await;
    assert!(matches!(refused, Err(StoreError::Limited { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_workflow_of_more_tasks_than_a_quota_has_cannot_be_started() {
    let server = server().await;
    server.quota(json!({ "tenant": "acme", "tasks_max": 2 })).await;
    server.start_for("acme", "w", Value::Null).await.ok(201);
    let detail = server.start_for("acme", "dag", Value::Null).await.problem(422, "WL-0001");
    assert_eq!(detail, r#"workflow "dag" has 3 tasks, the quota of tenant "acme" is 2"#);
    server.start_for("other", "dag", Value::Null).await.ok(201);
}

#[tokio::test]
async fn nobody_pays_for_what_another_tenant_asks_in_its_name() {
    let server = crate::tokens::guarded().await;
    let admin = token_of(&server.windlass, Role::Admin, None).await;
    let body = json!({ "name": "w", "slots": 1, "workflows": [single("w")] });
    server.post_as(&admin, "/v1/workers", body).await.ok(201);
    let quota = Quota {
        starts_per_second: Some(2),
        payload_bytes_per_second: Some(1_000),
        schedules_max: Some(1),
        backlog_max: Some(10),
        ..Quota::of(Some(tenant("bolt")))
    };
    server.windlass.store().set_quota(quota).await.expect("it makes sense");
    let acme = token_of(&server.windlass, Role::Worker, Some("acme")).await;
    let options = RemoteOptions::new(format!("http://{}", server.address)).token(acme.expose());
    let remote = RemoteStore::connect(options).expect("it is an address");
    let is_forbidden =
        |error: &StoreError| matches!(error, StoreError::Forbidden(why) if !why.contains("quota"));
    for _ in 0..5 {
        let answers = remote.start_runs(vec![new_run("bolt")]).await.expect("it is answered");
        assert!(answers[0].as_ref().is_err_and(is_forbidden), "{answers:?}");
        let signal = NewKeySignal {
            id: SignalId::from_random(1),
            to: windlass::store::Mailbox {
                tenant: tenant("bolt"),
                key: SignalKey::new("k").unwrap(),
                name: StepName::new("n").unwrap(),
            },
            value: Payload::encode(&"x".repeat(100_000)).unwrap(),
            keep_for: Duration::from_secs(60),
        };
        let refused = remote.signal_key(signal).await;
        assert!(refused.as_ref().is_err_and(is_forbidden), "{refused:?}");
    }
    let bolt = token_of(&server.windlass, Role::Worker, Some("bolt")).await;
    for _ in 0..2 {
        let body = json!({ "workflow": "w", "version": 1, "input": "x" });
        server.post_as(&bolt, "/v1/runs", body).await.ok(201);
    }
}

#[tokio::test]
async fn triggers_and_backfills_are_held_to_quotas_by_what_they_start() {
    let server = server().await;
    let day = |number: u32| format!("2024-01-{number:02}T00:00:00Z");
    let put = async |workflow: &str| {
        let cadence = json!({ "cron": { "expression": "0 0 * * *", "zone": "UTC" } });
        let body = json!({ "workflow": workflow, "version": 1, "cadence": cadence });
        server.put(&format!("/v1/schedules/{workflow}?tenant=acme"), body).await.ok(200);
    };
    put("w").await;
    put("dag").await;
    server.quota(json!({ "tenant": "acme", "tasks_max": 2, "backlog_max": 10 })).await;
    let ask = async |path: &str, body: Value| {
        server.post(&format!("/v1/schedules/{path}?tenant=acme"), body).await
    };
    ask("dag/trigger", json!({})).await.problem(422, "WL-0001");
    let days = |until: u32| json!({ "from": day(1), "until": day(until) });
    ask("dag/backfill", days(2)).await.problem(422, "WL-0001");
    let (detail, _) = limited(&ask("w/backfill", days(11)).await);
    let more = "0 tasks that wait, its quota is 10, and 11 more are asked for";
    assert_eq!(detail, format!("tenant \"acme\" has {more}"));
    assert_eq!(server.count_runs("acme").await, 0);
    assert_eq!(ask("w/backfill", days(9)).await.ok(200)["started"], 9);
    ask("w/trigger", json!({})).await.ok(200);
    limited(&ask("w/trigger", json!({})).await);
    server.quota(json!({ "tenant": "acme", "starts_per_second": 2 })).await;
    // More than a second's is let through, and paid for.
    let days = json!({ "from": day(12), "until": day(21) });
    assert_eq!(ask("w/backfill", days).await.ok(200)["started"], 10);
    let (_, after) = limited(&ask("w/trigger", json!({})).await);
    assert!((3..=5).contains(&after), "{after}");
}

#[tokio::test]
async fn a_quota_of_ones_own_takes_the_place_of_that_of_all_and_goes_when_it_is_cleared() {
    let server = server().await;
    server.quota(json!({ "starts_per_second": 1 })).await;
    server.quota(json!({ "tenant": "free" })).await;
    for _ in 0..5 {
        server.start_for("free", "w", Value::Null).await.ok(201);
    }
    server.start_for("acme", "w", Value::Null).await.ok(201);
    limited(&server.start_for("acme", "w", Value::Null).await);
    let listed = server.get("/v1/quotas").await.ok(200);
    assert_eq!(listed["quotas"][0]["starts_per_second"], 1);
    assert_eq!(listed["quotas"][1]["tenant"], "free");
    server.delete("/v1/quotas").await.ok(204);
    server.delete("/v1/quotas").await.problem(404, "WL-0004");
    for _ in 0..5 {
        server.start_for("acme", "w", Value::Null).await.ok(201);
    }
    let log = server.get("/v1/log").await.ok(200);
    let actions: Vec<&Value> =
        log["entries"].as_array().unwrap().iter().map(|one| &one["action"]).collect();
    assert_eq!(actions.iter().filter(|action| **action == "set_quota").count(), 2);
    server.put("/v1/quotas", json!({ "tasks_max": 0 })).await.problem(422, "WL-0002");
}

#[tokio::test]
async fn fires_and_children_are_exempt_from_the_rate_and_count_as_backlog() {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
    let windlass = Windlass::with_store(Arc::new(MemoryStore::with_clock(clock.clone())));
    let server = TestServer::on(windlass, ServerOptions::new(Access::insecure_dev())).await;
    server.worker(single("w")).await;
    let mut worker = server.worker(single("order")).await;
    server.start_for("acme", "order", Value::Null).await.ok(201);
    let function = worker.claim_one().await;
    let quota = json!({ "tenant": "acme", "starts_per_second": 1, "backlog_max": 8 });
    server.quota(quota).await;

    let cadence = json!({ "every": { "interval_ms": 1_000 } });
    let schedule = json!({ "workflow": "w", "version": 1, "cadence": cadence });
    server.put("/v1/schedules/s?tenant=acme", schedule).await.ok(200);
    clock.advance(Duration::from_secs(3));
    server.windlass.store().fire_schedules(BATCH_MAX).await.expect("it answers");
    assert_eq!(server.count_runs("acme").await, 1 + 3, "every fire starts a run");

    let token = &function["token"];
    let child = |place| json!({ "token": token, "call": 1, "place": place, "workflow": "w" });
    let children: Vec<Value> = (0..5).map(child).collect();
    let body = json!({ "tasks": children });
    let born = server.post(&worker.path("start-children"), body).await.ok(200);
    let is_started = |one: &Value| one["run"].is_string() && one["problem"].is_null();
    assert!(born["tasks"].as_array().expect("a list").iter().all(is_started), "{born}");
    assert_eq!(server.count_runs("acme").await, 1 + 3 + 5, "every child starts");

    let (detail, _) = limited(&server.start_for("acme", "w", Value::Null).await);
    assert_eq!(detail, r#"tenant "acme" has 8 tasks that wait, its quota is 8"#);
    server.start_for("other", "w", Value::Null).await.ok(201);
}
