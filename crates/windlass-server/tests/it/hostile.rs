//! Strings that break things elsewhere: they come back as they were, or are refused by a clear
//! answer, and the server goes on.

use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{TestServer, single, soon};

/// JSON texts that must come back byte by byte.
const KEPT: [&str; 11] = [
    r#""\u0000""#,
    r#""a\u0000b\u001b[31mred\u0007""#,
    r#""<script>alert(1)</script>&amp;<!--""#,
    r#""'; drop table runs; --""#,
    r#""../../etc/passwd""#,
    r#""\ud83d\ude00 \u202e reversed \ufeff""#,
    "\"\u{1F600} é \u{202E} \u{FFFF} \u{10FFFF}\"",
    r#"{"__proto__":{"a":1},"":"","a":1,"a":2}"#,
    r#"[1e308, -0.0, 1E-9999, 123456789012345678901234567890, 0.1000]"#,
    r##"{"$ref":"#/x","%00":"%s%n{{7*7}}${x}"}"##,
    r#""\\\"\/\b\f\n\r\t""#,
];

#[tokio::test]
async fn hostile_values_come_back_as_they_were() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    for text in KEPT {
        let body = format!(r#"{{"workflow":"w","version":1,"input":{text}}}"#);
        let started = server.raw(Method::POST, "/v1/runs", body).await.ok(201);
        let run = started["id"].as_str().unwrap().to_owned();
        let shown = server.get(&format!("/v1/runs/{run}")).await;
        assert!(shown.text.contains(&format!("\"input\":{text},")), "{text} in {}", shown.text);
        let claim = worker.next_claim(0).to_string();
        let claimed = server.raw(Method::POST, &worker.path("claim"), claim).await;
        assert!(claimed.text.contains(&format!("\"input\":{text},")), "{text}");
        let token = claimed.json()["tasks"][0]["token"].clone();
        let body = format!(r#"{{"tasks":[{{"token":{token},"outcome":{{"succeeded":{text}}}}}]}}"#);
        server.raw(Method::POST, &worker.path("finish"), body).await.ok(200);
        let tasks = server.get(&format!("/v1/runs/{run}/tasks")).await;
        assert!(tasks.text.contains(&format!("\"output\":{text},")), "{text} in {}", tasks.text);
    }
}

#[tokio::test]
async fn values_that_nobody_could_read_are_refused_with_their_place() {
    let server = TestServer::start().await;
    server.worker(single("w")).await;
    let deep = "[".repeat(20_000) + &"]".repeat(20_000);
    let objects = r#"{"a":"#.repeat(20_000) + "1" + &"}".repeat(20_000);
    for (text, status, code, why) in [
        (deep.as_str(), 422, "WL-0003", "input is nested 20000 deep, the limit is 120"),
        (&objects, 422, "WL-0003", "nested 20000 deep"),
        (r#"{"$serde_json::private::RawValue":"[1]"}"#, 422, "WL-0003", "is reserved"),
        (r#""\ud800""#, 422, "WL-0003", "hex escape"),
        (r#"["\udc00x"]"#, 422, "WL-0003", "surrogate"),
        (r#"{"\udabc":1}"#, 422, "WL-0003", "column"),
        ("1e999", 422, "WL-0003", "number out of range"),
        ("{", 400, "WL-0002", "line 1 column"),
        ("[1,]", 400, "WL-0002", "line 1 column"),
        ("nul", 400, "WL-0002", "line 1 column"),
        ("\"a\nb\"", 400, "WL-0002", "control character"),
    ] {
        let body = format!(r#"{{"workflow":"w","version":1,"input":{text}}}"#);
        let answer = server.raw(Method::POST, "/v1/runs", body).await;
        let shown: String = text.chars().take(30).collect();
        let detail = answer.problem(status, code);
        assert!(detail.contains(why), "{shown}: {detail}");
    }
    let deep_field = format!(r#"{{"workflow":"w","version":1,"metadata":{deep}}}"#);
    let status = server.raw(Method::POST, "/v1/runs", deep_field).await.status;
    assert!(matches!(status.as_u16(), 400 | 422), "{status}");
    let not_text = Bytes::from_static(b"{\"workflow\":\"\xff\xfe\",\"version\":1}");
    server.raw(Method::POST, "/v1/runs", not_text).await.problem(400, "WL-0002");
    let not_text = Bytes::from_static(b"{\"workflow\":\"w\",\"version\":1,\"input\":\"\xff\"}");
    server.raw(Method::POST, "/v1/runs", not_text).await.problem(400, "WL-0002");
}

#[tokio::test]
async fn values_over_the_limit_are_refused_and_those_at_it_are_not() {
    let server = TestServer::start().await;
    server.worker(single("w")).await;
    let limit = 1 << 20;
    for (length, is_kept) in [(limit - 2, true), (limit - 1, false)] {
        let input = "x".repeat(length);
        let body = json!({ "workflow": "w", "version": 1, "input": input });
        let answer = server.post("/v1/runs", body).await;
        match is_kept {
            true => drop(answer.ok(201)),
            false => assert!(answer.problem(413, "WL-0003").contains("payload_limit")),
        }
    }
    let body = " ".repeat((16 << 20) + (64 << 10) + 1);
    let answer = server.raw(Method::POST, "/v1/runs", body).await;
    assert!(answer.problem(413, "WL-0003").contains("over the limit"));
}

#[tokio::test]
async fn names_that_are_none_are_refused_by_their_field() {
    let server = TestServer::start().await;
    server.worker(single("w")).await;
    let start = |field: &str, value: Value| {
        let mut body = json!({ "workflow": "w", "version": 1 });
        body[field] = value;
        server.post("/v1/runs", body)
    };
    let long = "x".repeat(201);
    let longest = "é".repeat(100);
    for (field, value, why) in [
        ("workflow", json!("a\0b"), "control character at byte 1"),
        ("workflow", json!("\u{1b}[31m"), "control character"),
        ("workflow", json!(""), "empty"),
        ("tenant", json!(long), "has 201 bytes, the limit is 200"),
        ("key", json!("x".repeat(401)), "has 401 bytes, the limit is 400"),
        ("priority", json!(101), "-100 to 100"),
        ("version", json!(0), "version 0"),
        ("version", json!(-1), "-1"),
        ("version", json!(1.5), "1.5"),
        ("version", json!("1"), "expected a whole number from 0 to 4294967295"),
        ("id", json!("no"), "UUID"),
        ("delay_ms", json!(3_153_600_000_001_u64), "delay_ms"),
        ("delay_ms", json!(u64::MAX), "delay_ms"),
        ("metadata", json!({ "a": "\0" }), "NUL"),
        ("metadata", json!({ "a": 1 }), "expected a string"),
        ("surprise", json!(1), "unknown field `surprise`"),
    ] {
        let detail = start(field, value.clone()).await.problem(422, "WL-0002");
        assert!(detail.contains(why), "{field} {value}: {detail}");
    }
    start("tenant", json!(longest)).await.ok(201);
    start("tenant", json!("<b>\u{202e}'\"%00../")).await.ok(201);
    let pairs: serde_json::Map<_, _> =
        (0..65).map(|number| (number.to_string(), json!(""))).collect();
    let detail = start("metadata", Value::Object(pairs)).await.problem(422, "WL-0002");
    assert!(detail.contains("65 metadata pairs"), "{detail}");
}

#[tokio::test]
async fn lists_are_read_no_further_than_their_limit() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let list = |item: &str, count: usize, last: &str| {
        let items = [item].repeat(count).join(",");
        format!("[{items},{last}]")
    };
    // The item after the limit is not reached: what is wrong with it is not noticed.
    let runs = list(r#"{"workflow":"w"}"#, 1_001, "5");
    let tasks = list(r#"{"token":"x"}"#, 1_001, "5");
    let held = list(r#""x""#, 10_001, "5");
    let steps = list(r#"{"name":"a"}"#, 50_001, "5");
    let flow = list(r#"{"name":"a"}"#, 50_000, r#"{"name":"b"}"#);
    let workflow =
        format!(r#"{{"name":"f","tasks":{}}}"#, &flow.replacen(r#"{"name":"a"},"#, "", 1));
    for (path, body, most) in [
        ("/v1/run-batches".to_owned(), format!(r#"{{"runs":{runs}}}"#), 1_000),
        (worker.path("release"), format!(r#"{{"tasks":{tasks}}}"#), 1_000),
        (worker.path("heartbeat"), format!(r#"{{"settled":0,"held":{held}}}"#), 10_000),
        (
            "/v1/workers".to_owned(),
            format!(r#"{{"name":"w","slots":1,"workflows":[{{"name":"f","tasks":{steps}}}]}}"#),
            50_000,
        ),
        (
            "/v1/workers".to_owned(),
            format!(r#"{{"name":"w","slots":1,"workflows":[{workflow},{workflow},{workflow},5]}}"#),
            100_000,
        ),
    ] {
        let detail = server.raw(Method::POST, &path, body).await.problem(422, "WL-0002");
        assert!(detail.contains(&format!("more than {most} items")), "{path}: {detail}");
    }
    worker.claim().await;
}

#[tokio::test]
async fn hostile_paths_and_queries_are_refused_or_lead_nowhere() {
    let server = TestServer::start().await;
    for path in [
        "/v1/runs/../../etc/passwd",
        "/v1/runs/%2e%2e%2f",
        "/v1/runs/%00",
        "/v1/runs/%ff%fe",
        "/v1/runs/'",
        "/v1/runs/01981c2e-7a40-7c1f-9d57-0242ac12000",
        "/v1/runs?workflow=%00",
        "/v1/runs?workflow=%ff",
        "/v1/runs?workflow=",
        "/v1/runs?limit=99999999999999999999",
        "/v1/runs?limit=-1",
        "/v1/runs?limit=1&limit=2",
        "/v1/runs?metadata_key=%00&metadata_value=a",
        "/v1/dead-letters?reason=%00",
        "/v1/dead-letters?since=yesterday",
        "/v1/dead-letters?since=-009999-01-01T00:00:00Z",
        "/v1/log?action=destroy",
        "/v1/log?cursor=n1.18446744073709551615",
        "/v1/schedules/%00",
        "/v1/schedules/a?tenant=%0a",
        "//v1//runs",
        "/v1/runs/",
        "/%",
    ] {
        let answer = server.get(path).await;
        let status = answer.status.as_u16();
        assert!(matches!(status, 400 | 404 | 422), "{path}: {status} {}", answer.text);
        assert!(answer.json()["detail"].is_string(), "{path}");
    }
    let long = server.get(&format!("/v1/runs?workflow={}", "x".repeat(40_000))).await;
    assert!(matches!(long.status.as_u16(), 400 | 414), "{}", long.status);
    let mut stream = server.connect().await;
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(200_000));
    // The server may close before it has read all of it.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut said = [0; 10];
    let is_answered = soon("it is refused", stream.read_exact(&mut said)).await.is_ok();
    assert!(!is_answered || said == *b"HTTP/1.1 4", "{said:?}");
    server.get("/healthz").await.ok(200);
}
