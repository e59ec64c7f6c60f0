//! Schedules over HTTP.

use serde_json::{Value, json};

use crate::support::{TestServer, single};

#[tokio::test]
async fn a_schedule_lives_from_put_to_delete() {
    let server = TestServer::start().await;
    server.worker(single("report")).await;
    let body = json!({
        "workflow": "report", "version": 1, "input": { "a": 1 }, "priority": 3,
        "cadence": { "cron": { "expression": "0 2 * * *", "zone": "Europe/Berlin" } },
        "jitter_ms": 1000, "missed": { "last": 3 }, "overlap": "queue",
    });
    let path = "/v1/schedules/nightly%2Freport";
    let put = server.put(&format!("{path}?tenant=acme"), body.clone()).await.ok(200);
    assert_eq!((&put["name"], &put["state"]), (&json!("nightly/report"), &json!("active")));
    assert_eq!(put["tenant"], "acme");
    for field in ["workflow", "input", "priority", "cadence", "jitter_ms", "missed", "overlap"] {
        assert_eq!(put[field], body[field], "{field}");
    }
    server.get(path).await.problem(404, "WL-0004");
    let path = |verb: &str| format!("{path}{verb}?tenant=acme");
    let get = server.get(&path("")).await.ok(200);
    assert_eq!(get, put);
    server.post(&path("/pause"), json!({})).await.ok(204);
    assert_eq!(server.get(&path("")).await.ok(200)["state"], "paused");
    server.post(&path("/resume"), json!({})).await.ok(204);
    let run = server.post(&path("/trigger"), json!({})).await.ok(200);
    let run = server.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap())).await.ok(200);
    assert_eq!((&run["tenant"], &run["input"]), (&json!("acme"), &json!({ "a": 1 })));
    let days = json!({ "from": "2026-01-01T00:00:00Z", "until": "2026-01-03T12:00:00Z" });
    let filled = server.post(&path("/backfill"), days.clone()).await.ok(200);
    assert_eq!(filled, json!({ "started": 3, "existing": 0 }));
    let again = server.post(&path("/backfill"), days).await.ok(200);
    assert_eq!(again, json!({ "started": 0, "existing": 3 }));
    let fires = server.get(&path("/fires")).await.ok(200);
    let fires = fires["fires"].as_array().unwrap();
    assert!(fires.iter().any(|fire| fire["by"] == "trigger" && fire["result"] == "started"));
    server.delete(&path("")).await.ok(204);
    server.delete(&path("")).await.ok(204);
    server.get(&path("")).await.problem(404, "WL-0004");
    for verb in ["/pause", "/resume", "/trigger"] {
        server.post(&path(verb), json!({})).await.problem(404, "WL-0004");
    }
    let log = server.get("/v1/log").await.ok(200);
    let actions: Vec<&Value> =
        log["entries"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    let expected = [
        "delete_schedule",
        "backfill_schedule",
        "backfill_schedule",
        "trigger_schedule",
        "resume_schedule",
        "pause_schedule",
        "put_schedule",
        "register_workflow",
    ];
    assert_eq!(actions, expected);
    assert_eq!(log["entries"][0]["detail"], json!({ "schedule": "nightly/report" }));
}

#[tokio::test]
async fn schedules_come_in_pages_and_those_that_make_no_sense_are_refused() {
    let server = TestServer::start().await;
    server.worker(single("report")).await;
    let every = json!({ "every": { "interval_ms": 60_000 } });
    let body = |cadence: &Value| json!({ "workflow": "report", "version": 1, "cadence": cadence });
    for name in ["a", "b", "c"] {
        server.put(&format!("/v1/schedules/{name}"), body(&every)).await.ok(200);
    }
    let first = server.get("/v1/schedules?limit=2").await.ok(200);
    let next = first["next"].as_str().expect("there is another");
    let rest = server.get(&format!("/v1/schedules?limit=2&cursor={next}")).await.ok(200);
    assert_eq!(rest["schedules"].as_array().unwrap().len(), 1);
    assert_eq!(rest["schedules"][0]["name"], "c");
    for (cadence, why) in [
        (json!({ "cron": { "expression": "61 * * * *" } }), "61"),
        (json!({ "cron": { "expression": "* * * * *", "zone": "Mars/Base" } }), "Mars/Base"),
        (json!({ "every": { "interval_ms": 999 } }), "999"),
        (
            json!({ "every": { "interval_ms": 1000 }, "once": "2030-01-01T00:00:00Z" }),
            "exactly one",
        ),
        (json!({ "once": "tomorrow" }), "tomorrow"),
        (json!({}), "exactly one"),
    ] {
        let answer = server.put("/v1/schedules/x", body(&cadence)).await;
        assert!(matches!(answer.status.as_u16(), 400 | 422), "{cadence}: {}", answer.text);
        let body = answer.json();
        assert!(body["detail"].as_str().unwrap().contains(why), "{cadence}: {body}");
    }
    let past = json!({ "once": "2001-01-01T00:00:00Z" });
    server.put("/v1/schedules/x", body(&past)).await.problem(409, "WL-0005");
    let mut nobody = body(&every);
    nobody["workflow"] = json!("none");
    server.put("/v1/schedules/x", nobody).await.problem(404, "WL-0004");
}

#[tokio::test]
async fn a_cron_expression_is_explained_with_what_shifted_clocks_do() {
    let server = TestServer::start().await;
    let path = "/v1/explain-cron?expression=30+2+*+*+*&zone=Europe/Berlin";
    let told = server.get(&format!("{path}&after=2026-03-28T12:00:00Z&limit=1")).await.ok(200);
    let fire = json!({ "at": "2026-03-29T01:00:00Z", "local": "Sun 2026-03-29 03:00:00 +02:00",
        "shift": "skipped" });
    assert_eq!(told["fires"], json!([fire]));
    assert_eq!(server.get(path).await.ok(200)["fires"].as_array().unwrap().len(), 10);
    let wrong = server.get("/v1/explain-cron?expression=0+25+*+*+*").await;
    assert!(wrong.problem(422, "WL-0002").contains("at character 3"));
    server.get(&format!("{path}&limit=1001")).await.problem(422, "WL-0002");
}
