//! Who is let in: tokens, from the first to the last.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request};
use serde_json::{Value, json};
use tonic::transport::Endpoint;
use windlass::remote::RemoteOptions;
use windlass::store::NewToken;
use windlass::{ActionId, Operator, Role, Roles, Secret, TaskError, Tenant, Windlass, Workflow};
use windlass_proto::v1;
use windlass_proto::v1::client_service_client::ClientServiceClient;
use windlass_server::token::{mint, tag_of};
use windlass_server::{Access, ServerOptions};

use crate::support::{Answer, TestServer, single, soon};

/// A server that asks for tokens.
pub(crate) async fn guarded() -> TestServer {
    TestServer::with(ServerOptions::new(Access::tokens())).await
}

/// A token that was made at the database.
pub(crate) async fn token_of(windlass: &Windlass, role: Role, tenant: Option<&str>) -> Secret {
    let made = mint(Roles::from(role)).expect("there is randomness");
    let tenant = tenant.map(|tenant| Tenant::new(tenant).expect("it is a name"));
    let name = Operator::new(format!("the {role}")).expect("it is a name");
    let (id, tag) = (made.id(), tag_of(&made));
    let new = NewToken { id, tag, name, roles: role.into(), tenant, expires_at: None };
    windlass.store().create_token(new).await.expect("there is room");
    made.text()
}

impl TestServer {
    pub(crate) fn request_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: &str,
    ) -> Request<Full<Bytes>> {
        let mut request = self.request(method, path);
        if !token.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request.body(Full::new(Bytes::from(body.to_owned()))).expect("it is a request")
    }

    pub(crate) async fn get_as(&self, token: &Secret, path: &str) -> Answer {
        self.answer(self.request_as(token.expose(), Method::GET, path, "")).await
    }

    pub(crate) async fn post_as(&self, token: &Secret, path: &str, body: Value) -> Answer {
        let request = self.request_as(token.expose(), Method::POST, path, &body.to_string());
        self.answer(request).await
    }
}

#[tokio::test]
async fn whoever_shows_no_token_that_holds_is_told_the_same_whatever_is_wrong_with_it() {
    let server = guarded().await;
    let good = token_of(&server.windlass, Role::Viewer, None).await;
    assert_eq!(server.get_as(&good, "/v1/runs").await.status, 200);
    let shown = |text: String| {
        let server = &server;
        async move { server.get_as(&Secret::from(text), "/v1/runs").await }
    };
    let unknown = mint(Role::Viewer.into()).expect("there is randomness").text();
    let unknown = shown(unknown.expose().to_owned()).await;
    let detail = unknown.problem(401, "WL-0015");
    assert_eq!(unknown.headers["www-authenticate"], "Bearer");
    // The right id and another secret.
    let id = windlass::Token::parse(good.expose()).expect("it is one").id();
    let forged = windlass::Token::new(Role::Viewer, id, &[7; 32]).text();
    assert_eq!(shown(forged.expose().to_owned()).await.problem(401, "WL-0015"), detail);
    // What it says it is counts for nothing: the roles are in the database.
    let claimed = good.expose().replace("wl_viewer_", "wl_admin_");
    assert!(shown(claimed).await.problem(401, "WL-0015").contains("checksum"));
    let cut = good.expose()[..good.expose().len() - 1].to_owned();
    assert!(shown(cut).await.problem(401, "WL-0015").contains("checksum"));
    assert_eq!(server.get("/v1/runs").await.status, 401);
    assert_eq!(server.get("/healthz").await.status, 200, "that is for everyone");
    let body = json!({ "workflow": "w" });
    assert_eq!(server.post_as(&good, "/v1/runs", body).await.status, 403);
    let metrics = server.get_as(&good, "/metrics").await.text;
    for line in ["{status=\"401\"} 5", "{status=\"403\"} 1", "{status=\"421\"} 0"] {
        let line = format!("windlass_server_refused_total{line}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[tokio::test]
async fn a_token_that_is_made_over_http_is_shown_once_and_revoked_everywhere() {
    let server = guarded().await;
    let admin = token_of(&server.windlass, Role::Admin, None).await;
    let body = json!({ "name": "ci", "roles": ["viewer", "operator"], "expires_in_ms": 60_000 });
    let made = server.post_as(&admin, "/v1/tokens", body).await.ok(201);
    let (id, token) = (made["id"].as_str().unwrap(), Secret::from(made["token"].as_str().unwrap()));
    assert!(token.expose().starts_with(&format!("wl_operator_{id}_")), "{made}");
    let listed = server.get_as(&admin, "/v1/tokens").await.ok(200).to_string();
    let secret = windlass::Token::parse(token.expose()).unwrap();
    assert!(listed.contains(id) && !listed.contains(secret.secret().expose()));
    assert_eq!(server.get_as(&token, "/v1/runs").await.status, 200);

    // What it has open is closed with it, here and at any other server.
    let other = TestServer::on(server.windlass.clone(), ServerOptions::new(Access::tokens())).await;
    let mut streams = Vec::new();
    for at in [&server, &other] {
        let request = at.request_as(token.expose(), Method::GET, "/v1/runs/stream", "");
        let stream = at.send(request).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream.into_body());
    }
    let request =
        server.request_as(admin.expose(), Method::DELETE, &format!("/v1/tokens/{id}"), "");
    let revoked = server.answer(request).await.ok(200);
    assert!(revoked["revoked_at"].is_string(), "{revoked}");
    assert_eq!(server.get_as(&token, "/v1/runs").await.status, 401, "at once, where it was said");
    let refused = async {
        while other.get_as(&token, "/v1/runs").await.status != 401 {
            tokio::task::yield_now().await;
        }
    };
    soon("the token is refused", refused).await;
    for stream in streams {
        soon("the stream ends", stream.collect()).await.expect("it ends well");
    }
    let log = server.get_as(&admin, "/v1/log").await.ok(200);
    let entries = log["entries"].as_array().unwrap();
    let actions: Vec<_> = entries.iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["revoke_token", "create_token"]);
    assert!(entries.iter().all(|it| it["by"] == "the admin" && it["origin"] == "127.0.0.1"));
    assert!(!log.to_string().contains(secret.secret().expose()));
}

#[tokio::test]
async fn who_has_one_tenant_makes_tokens_for_that_one_and_sees_no_others() {
    let server = guarded().await;
    let own = token_of(&server.windlass, Role::Admin, Some("acme")).await;
    let all = token_of(&server.windlass, Role::Viewer, None).await;
    let body = |tenant: Value| json!({ "name": "x", "roles": ["viewer"], "tenant": tenant });
    let made = server.post_as(&own, "/v1/tokens", body(Value::Null)).await.ok(201);
    assert_eq!(made["tenant"], "acme", "nothing else can be meant");
    assert_eq!(server.post_as(&own, "/v1/tokens", body(json!("bolt"))).await.status, 403);
    let listed = server.get_as(&own, "/v1/tokens").await.ok(200);
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 2, "{listed}");
    let id = windlass::Token::parse(all.expose()).unwrap().id();
    let path = format!("/v1/tokens/{id}");
    let request = server.request_as(own.expose(), Method::DELETE, &path, "");
    assert!(server.answer(request).await.problem(404, "WL-0004").contains("does not exist"));
}

#[tokio::test]
async fn a_token_that_ends_makes_none_that_hold_longer() {
    let server = guarded().await;
    let admin = token_of(&server.windlass, Role::Admin, None).await;
    let body =
        |millis: Option<u64>| json!({ "name": "x", "roles": ["admin"], "expires_in_ms": millis });
    let made = server.post_as(&admin, "/v1/tokens", body(Some(60_000))).await.ok(201);
    let short = Secret::from(made["token"].as_str().unwrap());
    server.post_as(&short, "/v1/tokens", body(Some(30_000))).await.ok(201);
    for longer in [None, Some(120_000)] {
        let refused = server.post_as(&short, "/v1/tokens", body(longer)).await;
        assert!(refused.problem(403, "WL-0014").contains("may not hold longer"));
    }
}

#[tokio::test]
async fn a_request_that_is_held_ends_with_its_token() {
    let server = guarded().await;
    let admin = token_of(&server.windlass, Role::Admin, None).await;
    let body = json!({ "name": "w", "slots": 1, "workflows": [single("mail")] });
    server.post_as(&admin, "/v1/workers", body).await.ok(201);
    let run = server.post_as(&admin, "/v1/runs", json!({ "workflow": "mail" })).await.ok(201);
    let viewer = token_of(&server.windlass, Role::Viewer, None).await;
    let path = format!("/v1/runs/{}/wait?timeout_ms=30000", run["id"].as_str().unwrap());
    let waiting = soon("the request ends", server.get_as(&viewer, &path));
    let revoking = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let id = windlass::Token::parse(viewer.expose()).unwrap().id();
        let path = format!("/v1/tokens/{id}");
        let request = server.request_as(admin.expose(), Method::DELETE, &path, "");
        server.answer(request).await.ok(200);
    };
    let (answer, ()) = tokio::join!(waiting, revoking);
    answer.problem(401, "WL-0015");
}

#[tokio::test]
async fn what_a_client_says_it_did_is_not_in_the_log() {
    let server = guarded().await;
    let operator = token_of(&server.windlass, Role::Operator, Some("acme")).await;
    let channel = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let channel = channel.connect().await.unwrap();
    let entry = v1::NewLogEntry {
        id: ActionId::from_random(7).to_string(),
        action: v1::Action::CreateToken.into(),
        by: "the admin".to_owned(),
        ..Default::default()
    };
    let mut request = tonic::Request::new(entry);
    let shown = format!("Bearer {}", operator.expose()).parse().unwrap();
    request.metadata_mut().insert("authorization", shown);
    ClientServiceClient::new(channel).write_log(request).await.expect("older clients say it");
    let log = server.get_as(&operator, "/v1/log").await.ok(200);
    assert_eq!(log["entries"], json!([]));
}

#[tokio::test]
async fn a_run_says_who_started_it() {
    let server = guarded().await;
    let worker = token_of(&server.windlass, Role::Worker, None).await;
    let body = json!({ "name": "w", "slots": 1, "workflows": [single("mail")] });
    server.post_as(&worker, "/v1/workers", body).await.ok(201);
    let forged = json!({ "windlass.by": "someone else", "a": "b" });
    let body = json!({ "workflow": "mail", "version": 1, "input": 1, "metadata": forged });
    let started = server.post_as(&worker, "/v1/runs", body).await.ok(201);
    let path = format!("/v1/runs/{}", started["id"].as_str().unwrap());
    let run = server.get_as(&worker, &path).await.ok(200);
    let id = windlass::Token::parse(worker.expose()).unwrap().id();
    assert_eq!(run["metadata"]["windlass.by"], format!("the worker ({id}, 127.0.0.1)"));
    assert_eq!(run["metadata"]["a"], "b");
}

#[tokio::test]
async fn workflows_that_are_made_known_are_in_the_log_once() {
    let server = guarded().await;
    let worker = token_of(&server.windlass, Role::Worker, None).await;
    let join = async |workflow: Value| {
        let body = json!({ "name": "w", "slots": 1, "workflows": [workflow] });
        server.post_as(&worker, "/v1/workers", body).await.ok(201);
    };
    let mut other = single("mail");
    other["tasks"][0]["retry"] = json!({ "attempts": 9 });
    join(single("mail")).await;
    join(single("mail")).await;
    join(other).await;
    // The same by gRPC, on a stream of workers and in a call.
    let url = format!("http://{}", server.address);
    let far = RemoteOptions::new(&url).token(worker.expose());
    let far = Windlass::connect_server(far).expect("it is an address");
    let build = |name: &str| {
        let mut workflow = Workflow::<()>::builder(name);
        workflow.task("task").run(async |_| Ok::<_, TaskError>(()));
        workflow.build().expect("it is a workflow")
    };
    for name in ["called", "called"] {
        far.start(&build(name), ()).await.expect("it may");
    }
    for name in ["first", "second"] {
        let working = far.worker().name(name).register(&build("streamed")).spawn();
        let joined = async {
            while !server.get_as(&worker, "/v1/workers").await.text.contains(name) {
                tokio::task::yield_now().await;
            }
        };
        soon("it has joined", joined).await;
        working.expect("it may").drain().await.expect("it ends");
    }
    let log = server.get_as(&worker, "/v1/log?action=register_workflow").await.ok(200);
    let entries = log["entries"].as_array().expect("it is a list");
    let names: Vec<_> =
        entries.iter().map(|it| it["detail"]["workflow"].as_str().unwrap()).collect();
    assert_eq!(names, ["streamed", "called", "mail", "mail"]);
    let id = windlass::Token::parse(worker.expose()).unwrap().id().to_string();
    assert!(entries.iter().all(|it| it["token"] == id && it["origin"] == "127.0.0.1"), "{log}");
}

#[tokio::test]
async fn a_token_that_is_used_is_noted_and_one_whose_time_is_over_is_refused() {
    let server = guarded().await;
    let store = server.windlass.store();
    let made = mint(Role::Viewer.into()).expect("there is randomness");
    let name = Operator::new("short").expect("it is a name");
    let (id, tag, roles) = (made.id(), tag_of(&made), Role::Viewer.into());
    let expires_at = Some(store.now().await.expect("there is a clock"));
    let new = NewToken { id, tag, name, roles, tenant: None, expires_at };
    store.create_token(new).await.expect("there is room");
    assert_eq!(server.get_as(&made.text(), "/v1/runs").await.status, 401);

    let viewer = token_of(&server.windlass, Role::Viewer, None).await;
    assert_eq!(server.get_as(&viewer, "/v1/runs").await.status, 200);
    let id = windlass::Token::parse(viewer.expose()).expect("it is one").id();
    let noted = async {
        loop {
            let found = store.find_tokens(vec![id]).await.expect("it is read");
            if found[0].record.last_used_at.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("it is noted", noted).await;
}

#[tokio::test]
async fn a_metrics_token_reads_the_metrics_and_no_run() {
    let server = guarded().await;
    let admin = token_of(&server.windlass, Role::Admin, None).await;
    let body = json!({ "name": "prometheus", "roles": ["metrics"] });
    let made = server.post_as(&admin, "/v1/tokens", body).await.ok(201);
    let token = Secret::from(made["token"].as_str().expect("it is shown"));
    assert!(token.expose().starts_with("wl_metrics_"), "{made}");
    assert_eq!(server.get_as(&token, "/metrics").await.status, 200);
    let refused = server.get_as(&token, "/v1/runs").await.problem(403, "WL-0014");
    assert!(refused.contains("is metrics"), "{refused}");
    assert_eq!(server.get_as(&token, "/nowhere").await.status, 404);
    // Its metrics are of all tenants, so a tenant's own may not read them.
    let own = token_of(&server.windlass, Role::Metrics, Some("acme")).await;
    assert_eq!(server.get_as(&own, "/metrics").await.status, 403);
}
