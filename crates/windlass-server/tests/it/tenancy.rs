//! Tokens of a tenant among others: how much they may take, what they may replace, and what they
//! are told.

use std::time::Duration;

use futures_util::StreamExt as _;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use windlass::remote::{RemoteOptions, RemoteStore};
use windlass::store::{Hello, LogFilter, StoreError, WorkerInfo, WorkerLink as _};
use windlass::{Role, Secret, WorkerId};
use windlass_proto::v1;
use windlass_proto::v1::client_service_client::ClientServiceClient;
use windlass_server::{Access, ServerOptions};

use crate::support::{Answer, TestServer, single, soon};
use crate::tokens::{guarded, token_of};

async fn put_as(server: &TestServer, token: &Secret, path: &str, body: Value) -> Answer {
    let request = server.request_as(token.expose(), Method::PUT, path, &body.to_string());
    server.answer(request).await
}

async fn grpc(server: &TestServer) -> ClientServiceClient<tonic::transport::Channel> {
    let url = format!("http://{}", server.address);
    let endpoint = Endpoint::from_shared(url).expect("it is an address");
    ClientServiceClient::new(soon("it is reached", endpoint.connect()).await.expect("it listens"))
}

fn by<T>(token: &Secret, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let shown: MetadataValue<_> = format!("Bearer {}", token.expose()).parse().expect("it is text");
    request.metadata_mut().insert("authorization", shown);
    request
}

/// A join with a workflow.
fn joining(workflow: Value) -> Value {
    json!({ "name": "w", "slots": 1, "workflows": [workflow] })
}

#[tokio::test]
async fn a_token_and_a_tenant_have_so_many_live_workers_and_no_more() {
    let mut options = ServerOptions::new(Access::tokens());
    (options.workers_per_token_max, options.workers_per_tenant_max) = (2, 3);
    let server = TestServer::with(options).await;
    let all = token_of(&server.windlass, Role::Worker, None).await;
    server.post_as(&all, "/v1/workers", joining(single("w"))).await.ok(201);
    let one = token_of(&server.windlass, Role::Worker, Some("acme")).await;
    let two = token_of(&server.windlass, Role::Worker, Some("acme")).await;
    let other = token_of(&server.windlass, Role::Worker, Some("zenith")).await;
    let join =
        async |token: &Secret| server.post_as(token, "/v1/workers", joining(single("w"))).await;
    let first = join(&one).await.ok(201);
    join(&one).await.ok(201);
    let refused = join(&one).await;
    let detail = refused.problem(429, "WL-0016");
    assert!(detail.contains("2 live workers") && detail.contains("--workers-per-token"));
    join(&two).await.ok(201);
    let detail = join(&two).await.problem(429, "WL-0016");
    assert!(detail.contains("3 live workers") && detail.contains("--workers-per-tenant"));
    join(&other).await.ok(201);
    // One that leaves makes room.
    let path = format!("/v1/workers/{}", first["id"].as_str().expect("it has an id"));
    let request = server.request_as(one.expose(), Method::DELETE, &path, "");
    server.answer(request).await.ok(204);
    join(&one).await.ok(201);
}

#[tokio::test]
async fn the_limits_of_live_workers_hold_for_one_grpc_stream_and_for_several() {
    let mut options = ServerOptions::new(Access::tokens());
    (options.workers_per_token_max, options.workers_per_tenant_max) = (2, 3);
    let server = TestServer::with(options).await;
    let stream = |token: &Secret| {
        let options = RemoteOptions::new(format!("http://{}", server.address));
        RemoteStore::connect(options.token(token.expose())).expect("it is an address")
    };
    let join = async |stream: &RemoteStore, worker: u128| {
        let hello = Hello {
            worker: WorkerId::from_random(worker),
            name: "w".into(),
            slots: 1,
            lease: Duration::from_secs(10),
            definitions: Vec::new(),
            info: WorkerInfo::default(),
        };
        soon("it is answered", stream.join(hello)).await
    };
    let assert_refused = |answer: Result<(), StoreError>, limit: &str, option: &str| {
        let Err(StoreError::Limited { why, .. }) = &answer else { panic!("{answer:?}") };
        assert!(why.contains(limit) && why.contains(option), "{why}");
    };
    let of_token = ["2 live workers", "--workers-per-token"];
    let one = token_of(&server.windlass, Role::Worker, Some("acme")).await;
    let (first, second) = (stream(&one), stream(&one));
    for worker in [1, 2, 1] {
        assert_eq!(join(&first, worker).await, Ok(()), "to join again counts once");
    }
    for other in [&first, &second] {
        assert_refused(join(other, 3).await, of_token[0], of_token[1]);
    }
    let two = stream(&token_of(&server.windlass, Role::Worker, Some("acme")).await);
    assert_eq!(join(&two, 4).await, Ok(()));
    assert_refused(join(&two, 5).await, "3 live workers", "--workers-per-tenant");
    let other = stream(&token_of(&server.windlass, Role::Worker, Some("zenith")).await);
    assert_eq!(join(&other, 1).await, Ok(()));
    // One that leaves makes room, on every stream; one whose stream has ended does not.
    first.leave(WorkerId::from_random(1)).await.expect("it has joined");
    assert_eq!(join(&second, 3).await, Ok(()));
    drop(first);
    assert_refused(join(&second, 6).await, of_token[0], of_token[1]);
}

/// How often claims over HTTP have asked the store.
async fn scans(server: &TestServer) -> u64 {
    let metrics = server.get("/metrics").await.text;
    let line = metrics.lines().find(|line| line.starts_with("windlass_server_claim_scans_total "));
    let count = line.and_then(|line| line.rsplit_once(' ')).expect("it is counted").1;
    count.parse().expect("it is a number")
}

#[tokio::test]
async fn a_hint_makes_one_of_the_held_claims_for_the_same_ask_the_store() {
    const HELD: u64 = 60;
    const STARTS: u64 = 40;
    let server = TestServer::start().await;
    server.worker(single("other")).await;
    let mut held = JoinSet::new();
    for _ in 0..HELD {
        let mut worker = server.worker(single("mine")).await;
        let body = worker.next_claim(20_000).to_string();
        let path = worker.path("claim");
        let request =
            server.request(Method::POST, &path).header("content-type", "application/json");
        let request = request.body(hyper::body::Bytes::from(body).into()).expect("it is one");
        let address = server.address;
        held.spawn(async move {
            let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
            let stream = hyper_util::rt::TokioIo::new(stream);
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(stream).await.expect("it is HTTP");
            tokio::spawn(connection);
            let request: hyper::Request<http_body_util::Full<hyper::body::Bytes>> = request;
            sender.send_request(request).await.expect("it is answered").status()
        });
    }
    let all_held = async { while scans(&server).await < HELD {} };
    soon("all claims are held", all_held).await;
    let before = scans(&server).await;
    for _ in 0..STARTS {
        server.start_run("other", json!(1)).await;
    }
    // The held claims still hear of what is for them.
    server.start_run("mine", json!(1)).await;
    let first = soon("one gets the task", held.join_next()).await.expect("there are some");
    assert_eq!(first.expect("it does not panic"), 200);
    let asked = scans(&server).await - before;
    // One for each hint, and one in a second without.
    assert!(asked <= 2 * (STARTS + 1), "{asked} scans for {STARTS} starts of another workflow");
}

/// A workflow with a limit that all tenants share.
fn shared_limit() -> Value {
    let limit = json!({ "name": "provider", "slots": 5, "is_across_tenants": true });
    json!({ "name": "pay", "tasks": [{ "name": "only", "limits": [limit] }] })
}

#[tokio::test]
async fn a_workflow_with_a_limit_across_tenants_is_registered_by_admins() {
    let server = guarded().await;
    let worker = token_of(&server.windlass, Role::Worker, None).await;
    let admin = token_of(&server.windlass, Role::Admin, None).await;
    let join =
        async |token: &Secret| server.post_as(token, "/v1/workers", joining(shared_limit())).await;
    let detail = join(&worker).await.problem(403, "WL-0014");
    assert!(detail.contains("\"provider\"") && detail.contains("admin token"), "{detail}");
    join(&admin).await.ok(201);
    // As it is, anyone who works may bring it.
    join(&worker).await.ok(201);
    let own = token_of(&server.windlass, Role::Worker, Some("acme")).await;
    join(&own).await.ok(201);
}

#[tokio::test]
async fn signals_of_programs_leave_no_lines_and_those_of_operators_do() {
    let server = guarded().await;
    let lines = async || {
        let filter = LogFilter { limit: 100, ..LogFilter::default() };
        server.windlass.store().list_log(filter).await.expect("it is read").entries.len()
    };
    let worker = token_of(&server.windlass, Role::Worker, Some("acme")).await;
    let operator = token_of(&server.windlass, Role::Operator, Some("acme")).await;
    let body = json!({ "key": "k", "name": "paid", "value": 1 });
    for _ in 0..3 {
        server.post_as(&worker, "/v1/signals", body.clone()).await.ok(200);
    }
    assert_eq!(lines().await, 0);
    server.post_as(&operator, "/v1/signals", body).await.ok(200);
    assert_eq!(lines().await, 1);
}

#[tokio::test]
async fn a_worker_replaces_its_own_schedule_and_not_that_of_an_operator() {
    let server = guarded().await;
    let all = token_of(&server.windlass, Role::Worker, None).await;
    server.post_as(&all, "/v1/workers", joining(single("w"))).await.ok(201);
    let worker = token_of(&server.windlass, Role::Worker, Some("acme")).await;
    let operator = token_of(&server.windlass, Role::Operator, Some("acme")).await;
    let every = |minutes: u64| {
        let cadence = json!({ "every": { "interval_ms": minutes * 60_000 } });
        json!({ "workflow": "w", "version": 1, "cadence": cadence })
    };
    put_as(&server, &worker, "/v1/schedules/own", every(1)).await.ok(200);
    put_as(&server, &worker, "/v1/schedules/own", every(2)).await.ok(200);
    put_as(&server, &operator, "/v1/schedules/night", every(1)).await.ok(200);
    let refused = put_as(&server, &worker, "/v1/schedules/night", every(2)).await;
    let detail = refused.problem(403, "WL-0014");
    assert!(detail.contains("created by an operator"), "{detail}");
    put_as(&server, &operator, "/v1/schedules/night", every(3)).await.ok(200);
    put_as(&server, &operator, "/v1/schedules/own", every(3)).await.ok(200);
}

#[tokio::test]
async fn who_wrote_a_line_of_the_log_is_for_admins() {
    let server = guarded().await;
    let operator = token_of(&server.windlass, Role::Operator, Some("acme")).await;
    let viewer = token_of(&server.windlass, Role::Viewer, Some("acme")).await;
    let admin = token_of(&server.windlass, Role::Admin, Some("acme")).await;
    let body = json!({ "key": "k", "name": "paid", "value": 1 });
    server.post_as(&operator, "/v1/signals", body).await.ok(200);
    let shown =
        async |token: &Secret| server.get_as(token, "/v1/log").await.ok(200)["entries"][0].clone();
    for token in [&operator, &admin] {
        let line = shown(token).await;
        assert_eq!(line["by"], "the operator", "one's own, or for admins: {line}");
        assert!(line["token"].is_string() && line["origin"].is_string(), "{line}");
    }
    let line = shown(&viewer).await;
    assert_eq!((&line["by"], &line["action"]), (&json!("hidden"), &json!("signal_key")));
    assert!(line["token"].is_null() && line["origin"].is_null(), "{line}");
    let searched = server.get_as(&viewer, "/v1/log?by=the%20operator").await;
    assert!(searched.problem(403, "WL-0014").contains("admin"));
    let mut client = grpc(&server).await;
    let request = v1::ListLogRequest { limit: 1, ..Default::default() };
    let page = client.list_log(by(&viewer, request.clone())).await.expect("it may").into_inner();
    assert_eq!((page.entries[0].by.as_str(), &page.entries[0].token), ("hidden", &None));
    let request = v1::ListLogRequest { by: Some("x".to_owned()), ..request };
    let refused = client.list_log(by(&viewer, request)).await.expect_err("it may not");
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn hints_about_runs_tell_a_tenant_nothing_of_others() {
    let server = guarded().await;
    let admin = token_of(&server.windlass, Role::Admin, None).await;
    server.post_as(&admin, "/v1/workers", joining(single("w"))).await.ok(201);
    let own = token_of(&server.windlass, Role::Viewer, Some("acme")).await;
    let mut client = grpc(&server).await;
    let hints = client.watch_runs(by(&own, v1::WatchRunsRequest {})).await.expect("it may");
    let mut hints = hints.into_inner();
    // Runs of another tenant end as fast as they can.
    let busy = async {
        loop {
            let body = json!({ "workflow": "w", "version": 1, "tenant": "zenith" });
            let run = server.post_as(&admin, "/v1/runs", body).await.ok(201);
            let path = format!("/v1/runs/{}/cancel", run["id"].as_str().expect("it has an id"));
            server.post_as(&admin, &path, json!({})).await;
        }
    };
    let counting = async {
        let began = tokio::time::Instant::now();
        for _ in 0..3 {
            soon("it is hinted", hints.next()).await.expect("it goes on").expect("it may");
        }
        began.elapsed()
    };
    let took = tokio::select! {
        took = counting => took,
        () = busy => Duration::ZERO,
    };
    assert!(took >= Duration::from_millis(1_200), "hints follow others' runs: 3 in {took:?}");
}

#[tokio::test]
async fn every_answer_says_that_it_is_neither_to_be_guessed_nor_kept() {
    let server = guarded().await;
    let viewer = token_of(&server.windlass, Role::Viewer, None).await;
    for path in ["/healthz", "/v1/runs", "/v1/openapi.json", "/metrics", "/nowhere", "/v1/runs/x"] {
        for token in [Some(&viewer), None] {
            let shown = token.map_or("", |token| token.expose());
            let answer = server.answer(server.request_as(shown, Method::GET, path, "")).await;
            assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
            assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
        }
    }
}

#[tokio::test]
async fn an_admin_of_a_tenant_learns_nothing_of_a_token_whose_id_it_chooses() {
    let server = guarded().await;
    let admin = token_of(&server.windlass, Role::Admin, Some("acme")).await;
    let own = token_of(&server.windlass, Role::Viewer, Some("acme")).await;
    let others = token_of(&server.windlass, Role::Operator, Some("zenith")).await;
    let shared = token_of(&server.windlass, Role::Operator, None).await;
    let revoked = token_of(&server.windlass, Role::Operator, Some("zenith")).await;
    let parsed = |token: &Secret| windlass::Token::parse(token.expose()).expect("it is one");
    let revoked_id = parsed(&revoked).id();
    server.windlass.store().revoke_token(revoked_id).await.expect("it is there");
    let mut client = grpc(&server).await;
    let mut create = async |token: &Secret, tag: Vec<u8>| {
        let token = parsed(token);
        let new = v1::NewToken {
            id: token.id().to_string(),
            tag: tag.into(),
            name: "probe".to_owned(),
            roles: vec![v1::Role::Viewer.into()],
            tenant: Some("acme".to_owned()),
            expires_at_us: None,
        };
        let answer = client.create_token(by(&admin, new)).await;
        let status = answer.expect_err("the id is taken");
        (status.code(), status.message().replace(token.id().as_str(), "<id>"))
    };
    let expected = create(&own, vec![7; 32]).await;
    assert_eq!(expected.0, Code::FailedPrecondition, "{expected:?}");
    for token in [&others, &shared, &revoked] {
        assert_eq!(create(token, vec![7; 32]).await, expected);
        // Also with what its secret is checked against, which a server never tells.
        let tag = windlass_server::token::tag_of(&parsed(token)).0.to_vec();
        assert_eq!(create(token, tag).await, expected);
    }
}

#[tokio::test]
async fn usage_is_counted_up_to_a_limit_whatever_a_client_asks() {
    const TASKS: usize = 1_000;
    const LIMIT: u32 = 100_000;
    let server = TestServer::start().await;
    let tasks: Vec<Value> = (0..TASKS).map(|it| json!({ "name": format!("t{it}") })).collect();
    server.worker(json!({ "name": "wide", "tasks": tasks })).await;
    for _ in 0..=LIMIT as usize / TASKS {
        server.start_run("wide", json!(1)).await;
    }
    let mut client = grpc(&server).await;
    for (at_most, counted) in [(5, 5), (LIMIT, LIMIT), (LIMIT + 1, LIMIT), (u32::MAX, LIMIT)] {
        let request = v1::GetUsageRequest { tenant: "default".to_owned(), at_most };
        let reply = client.get_usage(request).await.expect("it is counted").into_inner();
        assert_eq!(reply.ready_tasks, counted, "at most {at_most}");
    }
}

/// A definition with a limit that all tenants share, as a message.
fn shared_limit_message() -> v1::Definition {
    let limit = v1::Limit {
        name: Some("provider".to_owned()),
        is_across_tenants: true,
        bound: Some(v1::limit::Bound::Slots(5)),
        ..Default::default()
    };
    let task = v1::Task { name: "only".to_owned(), limits: vec![limit], ..Default::default() };
    v1::Definition { name: "pay".to_owned(), version: 1, tasks: vec![task], ..Default::default() }
}

#[tokio::test]
async fn a_limit_across_tenants_is_registered_by_admins_over_grpc_too() {
    let server = guarded().await;
    let worker = token_of(&server.windlass, Role::Worker, None).await;
    let admin = token_of(&server.windlass, Role::Admin, None).await;
    let mut client = grpc(&server).await;
    let mut register = async |token: &Secret| {
        let definition = Some(shared_limit_message());
        let message = v1::RegisterWorkflowRequest { definition };
        client.register_workflow(by(token, message)).await.map(drop)
    };
    let refused = register(&worker).await.expect_err("it is for admins");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    register(&admin).await.expect("an admin may");
    register(&worker).await.expect("as it is registered");
}
