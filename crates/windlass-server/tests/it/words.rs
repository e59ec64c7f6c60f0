//! Words that are none: whoever says one is told in which field, and which there are.

use serde_json::{Value, json};

use crate::support::{TestServer, single};

const FINISH: &str = "/v1/workers/01981c2e-7a40-7c1f-9d57-0242ac120002/finish";
const RECORD: &str = "/v1/workers/01981c2e-7a40-7c1f-9d57-0242ac120002/record";

/// A body with a word in one of its fields.
type Case = (&'static str, &'static str, Value, &'static str, &'static [&'static str]);

fn with_task(task: Value) -> Value {
    let workflow = json!({ "name": "w", "tasks": [{ "name": "a" }, task] });
    json!({ "name": "w", "slots": 1, "workflows": [workflow] })
}

fn with_step(step: Value) -> Value {
    json!({ "tasks": [{ "token": "t", "steps": [step] }] })
}

fn cases() -> Vec<Case> {
    let rule = json!({ "state": "odd", "keep_for_ms": 1, "archives": false });
    let schedule = |field: &str, value: Value| {
        let mut body = json!({ "workflow": "w", "version": 1,
            "cadence": { "every": { "interval_ms": 1000 } } });
        body[field] = value;
        body
    };
    let finish = json!({ "tasks": [{ "token": "t", "outcome": { "odd": 1 } }] });
    let step = |change: Value| json!({ "call": 1, "name": "a", "kind": "step", "change": change });
    let wait = step(json!({ "open": { "wait": { "odd": 1 } } }));
    let result = step(json!({ "done": { "number": 1, "result": { "odd": 1 } } }));
    let mut kind = step(json!({ "open": { "wait": "forever" } }));
    kind["kind"] = json!("odd");
    vec![
        (
            "POST",
            "/v1/workers",
            with_task(json!({ "name": "b", "trigger": "odd" })),
            "workflows[0].tasks[1].trigger",
            &["all_succeeded", "all_finished", "any_failed", "none_failed"],
        ),
        (
            "POST",
            "/v1/workers",
            with_task(json!({ "name": "b", "on_worker_lost": "odd" })),
            "workflows[0].tasks[1].on_worker_lost",
            &["retry", "fail"],
        ),
        (
            "POST",
            "/v1/workers",
            with_task(json!({ "name": "b", "limits": [{ "slots": 1, "when_full": "odd" }] })),
            "workflows[0].tasks[1].limits[0].when_full",
            &["wait", "skip", "cancel_oldest"],
        ),
        (
            "POST",
            FINISH,
            finish,
            "tasks[0].outcome",
            &["succeeded", "failed", "skipped", "interrupted", "parked", "continued"],
        ),
        ("POST", RECORD, with_step(kind), "tasks[0].steps[0].kind", &["undoable", "child"]),
        (
            "POST",
            RECORD,
            with_step(step(json!({ "odd": {} }))),
            "tasks[0].steps[0].change",
            &["open", "done"],
        ),
        (
            "POST",
            RECORD,
            with_step(wait),
            "tasks[0].steps[0].change.open.wait",
            &["for_ms", "until", "forever", "children"],
        ),
        (
            "POST",
            RECORD,
            with_step(result),
            "tasks[0].steps[0].change.done.result",
            &["value", "failed"],
        ),
        (
            "PUT",
            "/v1/schedules/s",
            schedule("overlap", json!("odd")),
            "overlap",
            &["allow", "skip", "queue", "cancel_running"],
        ),
        (
            "PUT",
            "/v1/schedules/s",
            schedule("missed", json!({ "odd": 1 })),
            "missed",
            &["skip", "once", "last"],
        ),
        (
            "PUT",
            "/v1/schedules/s",
            schedule("cadence", json!({ "odd": 1 })),
            "cadence",
            &["cron", "every", "once"],
        ),
        ("PUT", "/v1/retention", rule, "state", &["succeeded", "failed", "cancelled"]),
    ]
}

#[tokio::test]
async fn a_word_that_is_none_is_refused_with_its_field_and_those_that_there_are() {
    let server = TestServer::start().await;
    server.worker(single("w")).await;
    for (method, path, body, field, allowed) in cases() {
        let answer = match method {
            "PUT" => server.put(path, body).await,
            _ => server.post(path, body).await,
        };
        let detail = answer.problem(422, "WL-0002");
        assert!(detail.starts_with(&format!("body: {field}: unknown variant `odd`")), "{detail}");
        for word in allowed {
            assert!(detail.contains(&format!("`{word}`")), "{word}: {detail}");
        }
    }
}

#[tokio::test]
async fn a_word_that_is_none_in_a_query_is_refused_the_same_way() {
    let server = TestServer::start().await;
    for (path, field, allowed) in [
        ("/v1/runs?state=odd", "state", ["running", "succeeded", "failed", "cancelled"].as_slice()),
        ("/v1/runs/stream?state=odd", "state", &["running", "cancelled"]),
        ("/v1/log?action=odd", "action", &["cancel_run", "redrive"]),
    ] {
        let answer = server.get(path).await;
        assert!(matches!(answer.status.as_u16(), 400 | 422), "{path}: {}", answer.text);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&format!("{field}: ")), "{path}: {detail}");
        for word in allowed {
            assert!(detail.contains(word), "{word}: {detail}");
        }
    }
}
