//! What is refused before anyone looks at it, and who may see what.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, ORIGIN};
use hyper::{Method, Request};
use serde_json::{Value, json};
use windlass::Windlass;
use windlass_server::{Access, ServeError, Server, ServerOptions};

use crate::support::{TestServer, single};

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_problems() {
    let server = TestServer::start().await;
    for path in ["/", "/v1", "/v1/jobs", "/v2/runs", "/V1/runs"] {
        server.get(path).await.problem(404, "WL-0004");
    }
    let answer = server.delete("/v1/runs").await;
    assert_eq!(answer.headers[ALLOW], "GET,HEAD,POST");
    assert!(answer.problem(405, "WL-0002").contains("DELETE"));
}

#[tokio::test]
async fn a_body_that_does_not_say_that_it_is_json_is_refused() {
    let server = TestServer::start().await;
    let send = async |kind: Option<&str>| {
        let mut request = server.request(Method::POST, "/v1/runs");
        if let Some(kind) = kind {
            request = request.header(CONTENT_TYPE, kind);
        }
        server.answer(request.body(Full::new(Bytes::from_static(b"{}"))).unwrap()).await
    };
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("json")]
    {
        send(kind).await.problem(415, "WL-0002");
    }
    for kind in ["application/json", "Application/JSON; charset=utf-8", "application/x+json"] {
        send(Some(kind)).await.problem(422, "WL-0002");
    }
    server.raw(Method::POST, "/v1/runs", "").await.problem(415, "WL-0002");
}

#[tokio::test]
async fn requests_for_other_names_and_from_other_pages_are_refused() {
    let server = TestServer::start().await;
    let send = async |method: Method, host: &str, origin: Option<&str>| {
        let mut request = Request::builder().method(method).uri("/v1/runs").header(HOST, host);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        let request = request.header(CONTENT_TYPE, "application/json");
        server.answer(request.body(Full::new(Bytes::from_static(b"{}"))).unwrap()).await
    };
    send(Method::GET, "evil.test", None).await.problem(421, "WL-0002");
    send(Method::POST, "127.0.0.1.evil.test", None).await.problem(421, "WL-0002");
    let detail = send(Method::POST, "localhost", Some("http://evil.test")).await;
    assert!(detail.problem(403, "WL-0014").contains("evil.test"));
    send(Method::POST, "localhost", Some("null")).await.problem(403, "WL-0014");
    send(Method::POST, "localhost", Some("http://localhost")).await.problem(422, "WL-0002");
    let mut options = ServerOptions::new(Access::insecure_dev());
    options.host_names = vec!["windlass.test".to_owned()];
    let named = TestServer::with(options).await;
    let request = Request::builder().uri("/healthz").header(HOST, "windlass.test:80");
    named.answer(request.body(Full::default()).unwrap()).await.ok(200);
    let nobody = Request::builder().uri("/healthz").body(Full::default()).unwrap();
    named.answer(nobody).await.problem(400, "WL-0002");
}

#[tokio::test]
async fn a_server_without_credentials_only_listens_on_loopback() {
    let server = || Server::new(Windlass::memory(), ServerOptions::new(Access::insecure_dev()));
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = server().bind(address).await;
        assert!(matches!(refused, Err(ServeError::NotLoopback(_))), "{address}: {refused:?}");
    }
    let open = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = server().serve(open, std::future::pending()).await;
    assert!(matches!(refused, Err(ServeError::NotLoopback(_))), "{refused:?}");
    assert!(server().bind("127.0.0.1:0").await.is_ok());
}

#[tokio::test]
async fn whoever_has_one_tenant_sees_nothing_of_others() {
    let all = TestServer::start().await;
    all.worker(single("w")).await;
    let foreign = all.start_run("w", json!(1)).await;
    let tenant = windlass::Tenant::new("acme").unwrap();
    let options = ServerOptions::new(Access::insecure_dev().for_tenant(tenant));
    let acme = TestServer::on(all.windlass.clone(), options).await;
    let own = acme.start_run("w", json!(2)).await;
    let run = acme.get(&format!("/v1/runs/{own}")).await.ok(200);
    assert_eq!(run["tenant"], "acme");
    for path in ["", "/wait", "/tasks", "/tasks/only", "/events", "/events/stream", "/why"] {
        acme.get(&format!("/v1/runs/{foreign}{path}")).await.problem(404, "WL-0004");
    }
    for path in ["cancel", "retry", "undo"] {
        let path = format!("/v1/runs/{foreign}/{path}");
        acme.post(&path, json!({})).await.problem(404, "WL-0004");
    }
    let signal = format!("/v1/runs/{foreign}/signals");
    acme.post(&signal, json!({ "name": "go" })).await.problem(404, "WL-0004");
    assert_eq!(all.get(&format!("/v1/runs/{foreign}")).await.ok(200)["state"], "running");
    let listed = acme.get("/v1/runs").await.ok(200);
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
    acme.get("/v1/runs?tenant=default").await.problem(403, "WL-0014");
    acme.get("/v1/schedules?tenant=default").await.problem(403, "WL-0014");
    acme.get("/v1/dead-letters?tenant=default").await.problem(403, "WL-0014");
    let other = json!({ "workflow": "w", "version": 1, "tenant": "default" });
    acme.post("/v1/runs", other).await.problem(403, "WL-0014");
    for path in ["/v1/workers", "/v1/queues", "/v1/leaders", "/v1/quotas", "/v1/duties"] {
        acme.get(path).await.problem(403, "WL-0014");
    }
    let join = |workflow: &str| json!({ "name": "w", "slots": 1, "workflows": [single(workflow)] });
    acme.post("/v1/workers", join("w")).await.ok(201);
    // Workflows are for all tenants.
    acme.post("/v1/workers", join("another")).await.problem(403, "WL-0014");
    let nothing = acme.get("/v1/archived-runs/01981c2e-7a40-7c1f-9d57-0242ac120002").await;
    assert_eq!(nothing.json()["code"], Value::from("WL-0004"));
}

#[tokio::test]
async fn a_list_is_not_taken_for_the_fields_in_their_order() {
    let server = TestServer::start().await;
    for body in ["[null, null]", " [\"acme\", 1]"] {
        let answer = server.raw(Method::PUT, "/v1/quotas", body).await;
        assert!(answer.problem(422, "WL-0002").contains("expected an object"));
    }
    assert_eq!(server.get("/v1/quotas").await.ok(200)["quotas"].as_array().map(Vec::len), Some(0));
}
