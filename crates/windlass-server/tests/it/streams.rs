//! Server-sent events.

use http_body_util::{BodyExt as _, Full};
use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};

use windlass_server::{Access, ServerOptions};

use crate::support::{DEADLINE, TestServer, single, soon};

/// A stream, event by event.
struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    async fn open(server: &TestServer, path: &str, last: Option<&str>) -> Self {
        let mut request = server.request(Method::GET, path);
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let response = server.send(request.body(Full::default()).expect("it is a request")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        Events { body: response.into_body(), text: String::new() }
    }

    /// The next event: its name, its id and what it says; none if the stream has ended.
    async fn next(&mut self) -> Option<(String, String, Value)> {
        soon("the stream goes on or ends", self.read()).await
    }

    async fn read(&mut self) -> Option<(String, String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    let prefix = format!("{name}: ");
                    let value = event.lines().find_map(|line| line.strip_prefix(&prefix));
                    value.unwrap_or_default().to_owned()
                };
                if field("event").is_empty() {
                    continue;
                }
                let data = serde_json::from_str(&field("data")).expect("it is JSON");
                return Some((field("event"), field("id"), data));
            }
            let frame = self.body.frame().await?;
            let data = frame.ok()?.into_data().expect("it is data");
            self.text.push_str(std::str::from_utf8(&data).expect("it is text"));
        }
    }
}

#[tokio::test]
async fn the_history_of_a_run_is_told_as_it_happens_and_goes_on_where_it_broke_off() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let run = server.start_run("w", Value::Null).await;
    let path = format!("/v1/runs/{run}/events/stream");
    let mut events = Events::open(&server, &path, None).await;
    let (name, first, started) = events.next().await.unwrap();
    assert_eq!((name.as_str(), &started["kind"]), ("event", &json!("run_started")));
    assert_eq!(started["id"], first);
    assert_eq!(events.next().await.unwrap().2["kind"], "queued");
    worker.run_one(json!({ "succeeded": "line\nbreak\r" })).await;
    for kind in ["started", "succeeded", "run_ended"] {
        assert_eq!(events.next().await.unwrap().2["kind"], kind);
    }
    assert_eq!(events.next().await.unwrap().0, "end");
    assert!(events.next().await.is_none());
    let by_query = format!("{path}?after={first}");
    for (path, last) in [(path.as_str(), Some(first.as_str())), (&by_query, None)] {
        let mut resumed = Events::open(&server, path, last).await;
        let mut kinds = Vec::new();
        while let Some((name, _, event)) = resumed.next().await {
            kinds.push(event["kind"].as_str().map_or(name, str::to_owned));
        }
        assert_eq!(kinds, ["queued", "started", "succeeded", "run_ended", "end"]);
    }
    let request = server.request(Method::GET, &path).header("Last-Event-ID", "x");
    let wrong = server.answer(request.body(Full::default()).unwrap()).await;
    assert!(wrong.problem(400, "WL-0002").contains("Last-Event-ID"));
}

#[tokio::test]
async fn lists_are_told_when_they_change() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    server.worker(single("other")).await;
    let first = server.start_run("w", Value::Null).await;
    let mut all = Events::open(&server, "/v1/runs/stream", None).await;
    let mut some = Events::open(&server, "/v1/runs/stream?workflow=other", None).await;
    let (name, _, run) = all.next().await.unwrap();
    assert_eq!((name.as_str(), &run["id"]), ("run", &json!(first)));
    assert_eq!((&run["state"], run.get("input")), (&json!("running"), None));
    worker.run_one(json!({ "succeeded": 1 })).await;
    let (_, _, run) = all.next().await.unwrap();
    assert_eq!((&run["id"], &run["state"]), (&json!(first), &json!("succeeded")));
    let second = server.start_run("other", Value::Null).await;
    assert_eq!(all.next().await.unwrap().2["id"], json!(second));
    assert_eq!(some.next().await.unwrap().2["id"], json!(second), "and not the other");
    let mut queues = Events::open(&server, "/v1/queues/stream", None).await;
    let (name, _, list) = queues.next().await.unwrap();
    assert!(name == "queues" && list["queues"].is_array());
}

#[tokio::test]
async fn workers_and_dead_letters_are_told_when_they_change() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let mut workers = Events::open(&server, "/v1/workers/stream", None).await;
    let (name, _, list) = workers.next().await.unwrap();
    assert_eq!((name.as_str(), &list["workers"][0]["id"]), ("workers", &json!(worker.id)));
    let mut letters = Events::open(&server, "/v1/dead-letters/stream", None).await;
    let mut some = Events::open(&server, "/v1/dead-letters/stream?workflow=other", None).await;
    let (name, _, list) = letters.next().await.unwrap();
    assert_eq!((name.as_str(), &list["letters"]), ("letters", &json!([])));
    assert_eq!(some.next().await.unwrap().2["letters"], json!([]));
    let run = server.start_run("w", Value::Null).await;
    worker.run_one(json!({ "failed": { "message": "no" } })).await;
    assert_eq!(letters.next().await.unwrap().2["letters"][0]["run"], json!(run));
    let other = server.worker(single("other")).await;
    let last = server.start_run("other", Value::Null).await;
    let mut other = other;
    other.run_one(json!({ "failed": { "message": "no" } })).await;
    let (_, _, list) = some.next().await.unwrap();
    assert_eq!(list["letters"].as_array().unwrap().len(), 1, "and not the other");
    assert_eq!(list["letters"][0]["run"], json!(last));
    let joined = async {
        loop {
            let (_, _, list) = workers.next().await.unwrap();
            if list["workers"].as_array().unwrap().len() == 2 {
                break;
            }
        }
    };
    soon("the other is told of", joined).await;
    let only = Access::insecure_dev().for_tenant(windlass::Tenant::new("acme").unwrap());
    let server = TestServer::with(ServerOptions::new(only)).await;
    server.get("/v1/workers/stream").await.problem(403, "WL-0014");
    server.get("/v1/dead-letters/stream?tenant=other").await.problem(403, "WL-0014");
}

#[tokio::test]
async fn streams_and_held_requests_end_with_the_server() {
    let mut options = ServerOptions::new(Access::insecure_dev());
    options.drain_time_max = 10 * DEADLINE;
    let mut server = TestServer::with(options).await;
    let mut worker = server.worker(single("w")).await;
    let (path, claim) = (worker.path("claim"), worker.next_claim(30_000));
    let mut lists = Events::open(&server, "/v1/runs/stream", None).await;
    let request = server.request(Method::POST, &path).header(CONTENT_TYPE, "application/json");
    let request = request.body(Full::<Bytes>::from(claim.to_string())).unwrap();
    let stream = hyper_util::rt::TokioIo::new(server.connect().await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let held = tokio::spawn(sender.send_request(request));
    // The claim is held once the server has a worker that has been seen by it.
    let seen = async {
        loop {
            let workers = server.get("/v1/workers").await.ok(200);
            if workers["workers"][0]["seen_at"].is_string() {
                break;
            }
        }
    };
    soon("the worker is seen", seen).await;
    server.begin_end();
    assert!(lists.next().await.is_none());
    let answer = soon("the claim is answered", held).await.unwrap();
    if let Ok(answer) = answer {
        assert_eq!(answer.status(), 200);
    }
    server.ended().await;
}
