//! What callers are told: conventional titles, no words of Rust, and what to do next.

use hyper::Method;
use serde_json::json;
use tokio::sync::mpsc;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use windlass_proto::v1;
use windlass_proto::v1::client_service_client::ClientServiceClient;
use windlass_proto::v1::worker_reply::Reply;
use windlass_proto::v1::worker_request::Request as Asked;
use windlass_proto::v1::worker_service_client::WorkerServiceClient;

use crate::support::{TestServer, single, soon};

const NOBODY: &str = "01981c2e-7a40-7c1f-9d57-0242ac120002";

#[tokio::test]
async fn problems_have_titles_that_people_know_and_pages_that_are_served() {
    let server = TestServer::start().await;
    for (path, title) in [
        ("/v1/runs?limit=x", "Invalid request"),
        ("/nowhere", "Not found"),
        (&format!("/v1/runs/{NOBODY}"), "Not found"),
    ] {
        let body = server.get(path).await.json();
        assert_eq!(body["title"], title, "{body}");
        let page = server.get(body["type"].as_str().expect("it has a type")).await;
        assert_eq!(page.status, 200);
        assert_eq!(page.headers["content-type"], "text/markdown; charset=utf-8");
        let code = body["code"].as_str().expect("it has a code");
        assert!(page.text.starts_with(&format!("# {code}: {title}\n")), "{}", page.text);
    }
    server.get("/errors/WL-9999").await.problem(404, "WL-0004");
    for kind in windlass::ErrorKind::ALL {
        let page = server.get(&format!("/errors/{}", kind.code())).await;
        assert_eq!(page.status, 200, "{kind:?}");
    }
}

#[tokio::test]
async fn problems_name_ranges_and_no_types_of_rust() {
    let server = TestServer::start().await;
    let mut worker = server.worker(single("w")).await;
    let start = |field: &str, value: serde_json::Value| {
        let mut body = json!({ "workflow": "w" });
        body[field] = value;
        server.post("/v1/runs", body)
    };
    let detail = start("priority", json!("high")).await.problem(422, "WL-0002");
    assert!(detail.contains("a whole number from -100 to 100"), "{detail}");
    let detail = start("version", json!("one")).await.problem(422, "WL-0002");
    assert!(detail.contains("a whole number from 0 to 4294967295"), "{detail}");
    let detail = server.get("/v1/runs?limit=x").await.problem(400, "WL-0002");
    assert!(detail.contains("expected a whole number"), "{detail}");
    assert!(!detail.contains("digit"), "{detail}");
    server.start_run("w", json!(1)).await;
    let task = worker.claim_one().await;
    let finish = async |outcome: &str| {
        let body = format!(r#"{{"tasks":[{{"token":{},"outcome":{outcome}}}]}}"#, task["token"]);
        server.raw(Method::POST, &worker.path("finish"), body).await.problem(422, "WL-0002")
    };
    let detail = finish(r#"{"failed":5}"#).await;
    assert!(detail.contains("expected an object") && !detail.contains("struct"), "{detail}");
    let detail = finish(r#"{"succeeded":1,"failed":{"message":"x"}}"#).await;
    assert!(detail.contains("outcome") && detail.contains("exactly one"), "{detail}");
}

#[tokio::test]
async fn problems_say_what_to_do_next() {
    let server = TestServer::start().await;
    server.worker(single("order")).await;
    let detail = server.get("/v1/runs/17").await.problem(400, "WL-0002");
    assert!(detail.contains("UUID"), "{detail}");
    let detail = server.post("/v1/runs", json!({ "workflow": "ordre" })).await;
    let detail = detail.problem(404, "WL-0004");
    assert!(detail.contains("no worker has registered it; did you mean \"order\"?"), "{detail}");
    let detail = server.post("/v1/runs", json!({ "workflow": "quite another" })).await;
    assert!(!detail.problem(404, "WL-0004").contains("did you mean"));
    let claim = json!({ "number": 1, "limit": 1, "workflows": [{ "name": "order" }] });
    let lost = server.post(&format!("/v1/workers/{NOBODY}/claim"), claim).await;
    assert!(lost.problem(410, "WL-0006").contains("join again"), "{}", lost.text);
    let request = hyper::Request::get("/v1/runs").header("host", "windlass.test");
    let request = request.body(hyper::body::Bytes::new().into()).expect("it is a request");
    let detail = server.answer(request).await.problem(421, "WL-0002");
    assert!(detail.contains("--host-name windlass.test"), "{detail}");
}

#[tokio::test]
async fn a_schedule_without_a_version_takes_the_newest() {
    let server = TestServer::start().await;
    for version in [1, 2] {
        let mut workflow = single("w");
        workflow["version"] = json!(version);
        server.worker(workflow).await;
    }
    let cadence = json!({ "every": { "interval_ms": 60_000 } });
    let body = json!({ "workflow": "w", "cadence": cadence });
    let put = server.put("/v1/schedules/s", body).await.ok(200);
    assert_eq!(put["version"], 2, "{put}");
}

async fn channel(server: &TestServer) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    soon("it is reached", endpoint.connect()).await.expect("it listens")
}

#[tokio::test]
async fn grpc_says_what_does_not_exist_and_which_field_is_wrong() {
    let server = TestServer::start().await;
    let mut client = ClientServiceClient::new(channel(&server).await);
    let missing = client.get_run(v1::GetRunRequest { run: NOBODY.to_owned() }).await;
    let missing = missing.expect_err("there is none");
    let said = (missing.code(), missing.message().to_owned());
    assert_eq!(said, (Code::NotFound, format!("run {NOBODY} does not exist")));
    let wrong = client.get_run(v1::GetRunRequest { run: "17".to_owned() }).await;
    assert!(wrong.expect_err("it is no id").message().contains("UUID"));
    let retry = v1::RetryPolicy { attempts: 3, ..Default::default() };
    let task = v1::Task { name: "a".into(), retry: Some(retry), ..Default::default() };
    let definition =
        Some(v1::Definition { name: "w".into(), version: 1, tasks: vec![task], timeout_us: None });
    let refused = client.register_workflow(v1::RegisterWorkflowRequest { definition }).await;
    let refused = refused.expect_err("a factor of 0 makes no sense");
    let text = refused.message();
    assert!(text.contains("retry.factor") && text.contains("set every field"), "{text}");
}

/// A stream of workers.
struct Stream {
    requests: mpsc::Sender<v1::WorkerRequest>,
    replies: tonic::Streaming<v1::WorkerReply>,
    last: u64,
}

impl Stream {
    async fn open(channel: Channel) -> Self {
        let (requests, queue) = mpsc::channel(16);
        let outbound = futures_util::stream::unfold(queue, async |mut queue| {
            queue.recv().await.map(|request| (request, queue))
        });
        // The limit of every client that sets none.
        let mut client = WorkerServiceClient::new(channel).max_decoding_message_size(4 << 20);
        let replies = soon("it is opened", client.work(Box::pin(outbound))).await;
        Stream { requests, replies: replies.expect("it may").into_inner(), last: 0 }
    }

    async fn ask(&mut self, request: Asked) -> Reply {
        self.last += 1;
        let id = self.last;
        let request = v1::WorkerRequest { id, request: Some(request), takes_parts: false };
        self.requests.send(request).await.expect("it is read");
        loop {
            let reply = soon("it is answered", self.replies.message()).await;
            let reply = reply.expect("the stream goes on").expect("it does not end");
            if reply.id == id {
                return reply.reply.expect("it says something");
            }
        }
    }

    fn hello(lease_us: u64) -> Asked {
        let task = v1::Task { name: "only".into(), ..Default::default() };
        let definition =
            v1::Definition { name: "w".into(), version: 1, tasks: vec![task], timeout_us: None };
        let definitions = vec![definition];
        let (worker, name) = (NOBODY.to_owned(), "w".to_owned());
        Asked::Hello(v1::Hello {
            worker,
            name,
            slots: 10,
            lease_us,
            definitions,
            ..Default::default()
        })
    }
}

#[tokio::test]
async fn a_worker_without_queues_serves_the_default_one_and_is_told_what_it_can_read() {
    let server = TestServer::start().await;
    let mut stream = Stream::open(channel(&server).await).await;
    // The same bounds as over HTTP.
    for (lease_us, is_welcome) in
        [(999_999, false), (1_000_000, true), (86_400_000_000, true), (86_400_000_001, false)]
    {
        let reply = stream.ask(Stream::hello(lease_us)).await;
        assert_eq!(matches!(reply, Reply::Welcome(_)), is_welcome, "{lease_us}: {reply:?}");
    }
    for _ in 0..8 {
        server.start_run("w", json!("x".repeat(900_000))).await;
    }
    let mut claimed = 0;
    for seq in 1..=8 {
        let claim = v1::Claim { worker: NOBODY.to_owned(), seq, limit: 10, ..Default::default() };
        let Reply::Tasks(tasks) = stream.ask(Asked::Claim(claim)).await else {
            panic!("these are no tasks");
        };
        assert!(tasks.tasks.len() <= 4, "{} tasks of 900 kB", tasks.tasks.len());
        claimed += tasks.tasks.len();
        if claimed == 8 {
            return;
        }
    }
    panic!("{claimed} of 8 tasks");
}
