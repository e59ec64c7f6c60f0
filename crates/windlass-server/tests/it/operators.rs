//! Dead letters, retention, weights, duties and how the server is.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::store::BATCH_MAX;

use crate::support::{TestServer, single};

#[tokio::test]
async fn dead_letters_are_redriven_and_discarded_once() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let mut runs = Vec::new();
    for code in ["declined", "declined", "other"] {
        runs.push(server.start_run("w", Value::Null).await);
        worker.run_one(json!({ "failed": { "message": "no", "code": code } })).await;
    }
    let listed = server.get("/v1/dead-letters?reason=declined&limit=1").await.ok(200);
    assert_eq!(listed["letters"][0]["run"], json!(runs[1]), "the newest first");
    let next = listed["next"].as_str().expect("there is another");
    let path = format!("/v1/dead-letters?reason=declined&cursor={next}");
    assert_eq!(server.get(&path).await.ok(200)["letters"][0]["run"], json!(runs[0]));
    let body = json!({ "id": "0198a000-0000-4000-8000-000000000009",
        "filter": { "reason": "declined" }, "limit": 1 });
    let first = server.post("/v1/dead-letters/redrive", body.clone()).await.ok(200);
    assert_eq!(first["runs"], json!([runs[0]]), "the oldest first");
    assert_eq!(server.post("/v1/dead-letters/redrive", body).await.ok(200), first);
    let discard = json!({ "filter": { "run": runs[2] } });
    let discarded = server.post("/v1/dead-letters/discard", discard).await.ok(200);
    assert_eq!(discarded["letters"], 1);
    let left = server.get("/v1/dead-letters").await.ok(200);
    assert_eq!(left["letters"].as_array().unwrap().len(), 1);
    for wrong in [
        json!({}),
        json!({ "filter": {}, "limit": 101 }),
        json!({ "filter": {}, "from": "2030-01-01T00:00:00Z" }),
        json!({ "filter": { "x": 1 } }),
    ] {
        server.post("/v1/dead-letters/redrive", wrong).await.problem(422, "WL-0002");
    }
}

#[tokio::test]
async fn rules_and_weights_are_set_and_seen() {
    let server = TestServer::start().await;
    let rule = json!({ "workflow": "w", "state": "failed", "keep_for_ms": 5, "archives": true });
    server.put("/v1/retention", rule).await.ok(204);
    let rules = server.get("/v1/retention").await.ok(200);
    assert_eq!(rules["rules"][0]["keep_for_ms"], 5);
    assert_eq!(rules["rules"][0]["workflow"], "w");
    server.delete("/v1/retention?workflow=w&state=succeeded").await.problem(404, "WL-0004");
    server.delete("/v1/retention?workflow=w&state=failed").await.ok(204);
    server.delete("/v1/retention?state=running").await.problem(400, "WL-0002");
    server
        .put("/v1/retention", json!({ "state": "running", "keep_for_ms": 1 }))
        .await
        .problem(422, "WL-0002");
    let long = json!({ "state": "failed", "keep_for_ms": u64::MAX });
    server.put("/v1/retention", long).await.problem(422, "WL-0002");
    server.put("/v1/tenants/acme/weight", json!({ "weight": 10 })).await.ok(204);
    for weight in [0, 1001] {
        let answer = server.put("/v1/tenants/acme/weight", json!({ "weight": weight })).await;
        assert!(answer.problem(422, "WL-0002").contains("weight"));
    }
    let log = server.get("/v1/log?action=set_weight").await.ok(200);
    assert_eq!(log["entries"][0]["tenant"], "acme");
    assert_eq!(log["entries"][0]["detail"], json!({ "weight": 10 }));
}

#[tokio::test]
async fn queues_leaders_duties_and_health_are_told() {
    let server = TestServer::start().await;
    server.worker(single("w")).await;
    server.start_run("w", Value::Null).await;
    server.windlass.store().roll_up(BATCH_MAX).await.unwrap();
    let queues = server.get("/v1/queues").await.ok(200);
    assert_eq!(queues["queues"][0]["queue"], "default");
    assert_eq!(queues["queues"][0]["ready"], 1);
    let leaders = server.get("/v1/leaders").await.ok(200);
    assert_eq!(leaders["leaders"].as_array().unwrap().len(), 6);
    assert_eq!(leaders["leaders"][0]["duty"], "promote_due");
    let declared = windlass::store::DutyDeclaration {
        name: windlass::DutyName::new("tidy").unwrap(),
        every: Duration::from_secs(60),
        is_new: true,
    };
    let claim = windlass::store::DutyClaim {
        candidate: windlass::CandidateId::from_random(1),
        process: "p".to_owned(),
        ttl: Duration::from_secs(60),
        duties: vec![declared],
    };
    server.windlass.store().claim_duties(claim).await.unwrap();
    let duties = server.get("/v1/duties").await.ok(200);
    assert_eq!(duties["duties"][0]["name"], "tidy");
    assert_eq!(duties["duties"][0]["holder"]["name"], "p");
    server.delete("/v1/duties/tidy").await.problem(409, "WL-0005");
    server.delete("/v1/duties/none").await.problem(404, "WL-0004");
    assert_eq!(server.get("/healthz").await.ok(200)["state"], "live");
    assert_eq!(server.get("/readyz").await.ok(200)["state"], "ready");
    let metrics = server.get("/metrics").await;
    assert!(metrics.text.contains("windlass_store_up 1"), "{}", metrics.text);
    assert!(metrics.text.contains("windlass_runs_started_total 1"), "{}", metrics.text);
}
