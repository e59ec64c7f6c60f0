//! A server for one test, a client for it, and a worker that says what it is told to.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use windlass::Windlass;
use windlass_server::{Access, ServeError, Server, ServerOptions};

/// How long anything may take that is expected to happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// What happens before the deadline.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// A server that ends with the test.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) windlass: Windlass,
    shutdown: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<Result<(), ServeError>>>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of an answer that has this status.
    pub(crate) fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        match self.text.is_empty() {
            true => Value::Null,
            false => self.json(),
        }
    }

    /// What a problem says that has this status and code.
    pub(crate) fn problem(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
        let body = self.json();
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(body["status"], status, "{body}");
        assert_eq!(body["type"], format!("/errors/{code}"));
        assert!(body["title"].is_string() && body["is_retryable"].is_boolean());
        body["detail"].as_str().expect("it has a detail").to_owned()
    }
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        TestServer::with(ServerOptions::new(Access::insecure_dev())).await
    }

    pub(crate) async fn with(options: ServerOptions) -> Self {
        TestServer::on(Windlass::memory(), options).await
    }

    pub(crate) async fn on(windlass: Windlass, options: ServerOptions) -> Self {
        let server = Server::new(windlass.clone(), options);
        let listener = server.bind("127.0.0.1:0").await.expect("it is loopback");
        let address = listener.local_addr().expect("it has one");
        let (shutdown, told) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(listener, async {
            let _ = told.await;
        }));
        TestServer { address, windlass, shutdown: Some(shutdown), serving: Some(serving) }
    }

    /// Lets the server end.
    pub(crate) fn begin_end(&mut self) {
        self.shutdown.take();
    }

    /// Waits until the server has ended.
    pub(crate) async fn ended(&mut self) {
        let serving = self.serving.take().expect("it was not ended before");
        let served = soon("the server ends", serving).await.expect("it does not panic");
        served.expect("it served");
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the server listens")
    }

    /// Sends a request on a connection of its own; the body of the answer is not read.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let stream = TokioIo::new(self.connect().await);
        let (mut sender, connection) = http1::handshake(stream).await.expect("it is HTTP");
        tokio::spawn(connection);
        let answer = soon("the server answers", sender.send_request(request)).await;
        answer.expect("it is an answer")
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        Request::builder().method(method).uri(path).header(HOST, self.address.to_string())
    }

    /// Sends a request whose body is this text, as JSON.
    pub(crate) async fn raw(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let body = body.into();
        let mut request = self.request(method, path);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        self.answer(request.body(Full::new(body)).expect("it is a request")).await
    }

    pub(crate) async fn answer(&self, request: Request<Full<Bytes>>) -> Answer {
        let (parts, body) = self.send(request).await.into_parts();
        let bytes = soon("the answer ends", body.collect()).await.expect("it is whole").to_bytes();
        let text = String::from_utf8(bytes.to_vec()).expect("it is text");
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.raw(Method::GET, path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.raw(Method::POST, path, body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.raw(Method::PUT, path, body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.raw(Method::DELETE, path, "").await
    }

    /// Starts a run of a workflow with an input; answers its id.
    pub(crate) async fn start_run(&self, workflow: &str, input: Value) -> String {
        let body = json!({ "workflow": workflow, "version": 1, "input": input });
        let started = self.post("/v1/runs", body).await.ok(201);
        started["id"].as_str().expect("it has an id").to_owned()
    }

    /// A worker that has joined with a workflow.
    pub(crate) async fn worker(&self, workflow: Value) -> TestWorker<'_> {
        let name = workflow["name"].clone();
        let body = json!({ "name": "w", "slots": 10, "workflows": [workflow] });
        let joined = self.post("/v1/workers", body).await.ok(201);
        let id = joined["id"].as_str().expect("it has an id").to_owned();
        TestWorker { server: self, id, workflow: name, claims: 0 }
    }
}

/// A workflow of one task, `only`, that is tried once.
pub(crate) fn single(name: &str) -> Value {
    json!({ "name": name, "tasks": [{ "name": "only", "retry": { "attempts": 1 } }] })
}

/// A worker that says what it is told to.
pub(crate) struct TestWorker<'a> {
    pub(crate) server: &'a TestServer,
    pub(crate) id: String,
    workflow: Value,
    claims: u64,
}

impl TestWorker<'_> {
    pub(crate) fn path(&self, verb: &str) -> String {
        format!("/v1/workers/{}/{verb}", self.id)
    }

    /// The body of its next claim.
    pub(crate) fn next_claim(&mut self, wait_ms: u64) -> Value {
        self.claims += 1;
        let workflows = json!([{ "name": self.workflow }]);
        json!({ "number": self.claims, "limit": 10, "wait_ms": wait_ms, "workflows": workflows })
    }

    /// The same worker, which claims tasks of another workflow from now on.
    pub(crate) fn serving(mut self, workflow: &str) -> Self {
        self.workflow = json!(workflow);
        self
    }

    pub(crate) async fn claim(&mut self) -> Vec<Value> {
        let body = self.next_claim(0);
        let claimed = self.server.post(&self.path("claim"), body).await.ok(200);
        claimed["tasks"].as_array().expect("it is a list").clone()
    }

    /// The only task that there is to claim.
    pub(crate) async fn claim_one(&mut self) -> Value {
        let mut tasks = self.claim().await;
        assert_eq!(tasks.len(), 1, "{tasks:?}");
        tasks.remove(0)
    }

    /// What is answered to something that it asks about a task.
    pub(crate) async fn ask(&self, verb: &str, task: &Value, mut question: Value) -> Value {
        question["token"] = task["token"].clone();
        self.server.post(&self.path(verb), question).await.ok(200)
    }

    /// What became of something that it says of a task.
    pub(crate) async fn say(&self, verb: &str, task: &Value, mut more: Value) -> Value {
        more["token"] = task["token"].clone();
        let body = json!({ "tasks": [more] });
        let answer = self.server.post(&self.path(verb), body).await.ok(200);
        answer["tasks"][0].clone()
    }

    /// Sends a body as it is written.
    pub(crate) async fn post_text(&self, verb: &str, body: String) -> Value {
        self.server.raw(Method::POST, &self.path(verb), body).await.ok(200)
    }

    pub(crate) async fn finish(&self, task: &Value, outcome: Value) -> Value {
        self.say("finish", task, json!({ "outcome": outcome })).await
    }

    /// Claims the only task that there is and ends it.
    pub(crate) async fn run_one(&mut self, outcome: Value) {
        let task = self.claim_one().await;
        let answer = self.finish(&task, outcome).await;
        assert_eq!(answer["is_accepted"], true, "{answer}");
    }
}
