//! The table of rights, walked: every operation, by every role, for one's own tenant and another's.

use std::collections::BTreeSet;

use hyper::Method;
use prost_reflect::DescriptorPool;
use serde_json::{Value, json};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;
use windlass::{Role, Roles, Secret};
use windlass_proto::v1;
use windlass_server::rights::{GRPC, HTTP, Reach, Right};

use crate::support::{TestServer, single};
use crate::tokens::{guarded, token_of};

const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

/// The services of the server: its own, and that of probes.
pub(crate) fn descriptors() -> DescriptorPool {
    let mut pool = DescriptorPool::decode(v1::DESCRIPTORS).expect("our descriptors");
    let health = tonic_health::pb::FILE_DESCRIPTOR_SET;
    pool.decode_file_descriptor_set(health).expect("the descriptors of gRPC");
    pool
}

/// Every HTTP operation of a server, by its method and its path.
pub(crate) async fn operations(server: &TestServer) -> BTreeSet<(String, String)> {
    let document = server.get("/v1/openapi.json").await.ok(200);
    let mut there = BTreeSet::from([("GET".to_owned(), "/v1/openapi.json".to_owned())]);
    for (path, item) in document["paths"].as_object().expect("it has paths") {
        for method in METHODS.into_iter().filter(|method| item.get(method).is_some()) {
            there.insert((method.to_uppercase(), path.clone()));
        }
    }
    there
}

#[tokio::test]
async fn every_path_and_every_call_is_in_the_table_and_nothing_else_is() {
    let there = operations(&TestServer::start().await).await;
    let row =
        |(method, path, _, _): &(&str, &str, _, _)| ((*method).to_owned(), (*path).to_owned());
    assert_eq!(there, HTTP.iter().map(row).collect());
    assert_eq!(there.len(), HTTP.len(), "one is there twice");

    let pool = descriptors();
    let path = |method: prost_reflect::MethodDescriptor| {
        format!("/{}/{}", method.parent_service().full_name(), method.name())
    };
    let there: BTreeSet<String> = pool
        .services()
        .flat_map(|service| service.methods().map(path).collect::<Vec<_>>())
        .collect();
    assert_eq!(there, GRPC.iter().map(|(path, _, _)| (*path).to_owned()).collect());
    assert_eq!(there.len(), GRPC.len(), "one is there twice");
}

/// Someone who comes to a server.
pub(crate) struct Guest {
    pub(crate) role: Role,
    pub(crate) tenant: Option<&'static str>,
    pub(crate) token: Secret,
}

impl Guest {
    fn may(&self, right: Right, reach: Reach) -> bool {
        let reaches = reach == Reach::Tenant || self.tenant.is_none();
        right == Right::Open || right.is_of(Roles::from(self.role)) && reaches
    }
}

/// A server with things of the tenant `own`, and everyone who may come.
pub(crate) struct World {
    pub(crate) server: TestServer,
    pub(crate) guests: Vec<Guest>,
    run: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        let server = guarded().await;
        let mut guests = Vec::new();
        for role in Role::ALL {
            for tenant in [None, Some("own"), Some("other")] {
                let token = token_of(&server.windlass, role, tenant).await;
                guests.push(Guest { role, tenant, token });
            }
        }
        let is_admin = |guest: &&Guest| (guest.role, guest.tenant) == (Role::Admin, None);
        let admin = guests.iter().find(is_admin).expect("there is one");
        let say = async |method: Method, path: &str, body: Value| {
            let request = server.request_as(admin.token.expose(), method, path, &body.to_string());
            server.answer(request).await
        };
        let body = json!({ "name": "w", "slots": 1, "workflows": [single("mail")] });
        say(Method::POST, "/v1/workers", body).await.ok(201);
        let body = json!({ "workflow": "mail", "version": 1, "input": 1, "tenant": "own" });
        let started = say(Method::POST, "/v1/runs", body).await.ok(201);
        let run = started["id"].as_str().expect("it has an id").to_owned();
        let cadence = json!({ "every": { "interval_ms": 3_600_000 } });
        let every = json!({ "workflow": "mail", "version": 1, "cadence": cadence });
        let put = say(Method::PUT, "/v1/schedules/nightly?tenant=own", every).await;
        assert!(put.status.is_success(), "{}", put.text);
        World { server, guests, run }
    }

    /// A path with the names of things of `own`, or of things that are not there.
    pub(crate) fn fill(&self, path: &str, is_there: bool) -> String {
        let nobody = "01981c2e-7a40-7c1f-9d57-0242ac120002";
        let run = if is_there { &self.run } else { nobody };
        let schedule = if is_there { "nightly" } else { "never" };
        let filled = path.replace("{run}", run).replace("{schedule}", schedule);
        let filled = filled.replace("{worker}", nobody).replace("{token}", "aaaaaaaaaaaaaaaa");
        filled.replace("{task}", "only").replace("{tenant}", "own").replace("{duty}", "sweep")
    }

    /// What is answered to an operation, without its end if it is a stream.
    pub(crate) async fn status(&self, token: &str, method: &str, path: &str) -> u16 {
        let body = if method == "GET" { "" } else { "{}" };
        let request = self.server.request_as(token, method.parse().expect("it is one"), path, body);
        self.server.send(request).await.status().as_u16()
    }
}

#[tokio::test]
async fn nobody_does_over_http_what_the_table_does_not_let_them() {
    let world = World::new().await;
    for (method, path, right, reach) in HTTP {
        let filled = world.fill(path, true);
        let status = world.status("", method, &filled).await;
        assert_eq!(status == 401, *right != Right::Open, "{method} {path} without a token");
        for guest in &world.guests {
            let status = world.status(guest.token.expose(), method, &filled).await;
            let who = format!("{method} {path} as {} of {:?}: {status}", guest.role, guest.tenant);
            assert_ne!(status, 401, "{who}");
            assert_eq!(status != 403, guest.may(*right, *reach), "{who}");
            assert!(status < 500, "{who}");
        }
    }
}

#[tokio::test]
async fn what_belongs_to_another_tenant_does_not_exist() {
    let world = World::new().await;
    let is_other = |guest: &&Guest| guest.tenant == Some("other") && guest.role == Role::Admin;
    let other = world.guests.iter().find(is_other).expect("there is one");
    let mut walked = 0;
    for (method, path, _, reach) in HTTP {
        let names_something = path.contains("{run}") || path.contains("{schedule}");
        if *reach == Reach::All || !names_something {
            continue;
        }
        // A schedule of this name is made for the caller's own tenant.
        if (*method, *path) == ("PUT", "/v1/schedules/{schedule}") {
            continue;
        }
        let body = match *path {
            "/v1/runs/{run}/signals" => r#"{"name":"x","value":1}"#,
            "/v1/schedules/{schedule}/backfill" => {
                r#"{"from":"2026-01-01T00:00:00Z","until":"2026-01-01T00:00:01Z"}"#
            }
            _ if *method == "GET" => "",
            _ => "{}",
        };
        let ask = async |is_there: bool| {
            let filled = world.fill(path, is_there);
            let method = method.parse().unwrap();
            let request = world.server.request_as(other.token.expose(), method, &filled, body);
            let answer = world.server.answer(request).await;
            let told = answer.text.replace(&world.run, "<run>").replace("nightly", "<schedule>");
            let told = told.replace("01981c2e-7a40-7c1f-9d57-0242ac120002", "<run>");
            (answer.status.as_u16(), told.replace("never", "<schedule>"))
        };
        let (there, nowhere) = (ask(true).await, ask(false).await);
        assert_eq!(there, nowhere, "{method} {path}");
        let is_nothing = there.0 == 404 || *method == "DELETE" && there.0 == 204;
        assert!(is_nothing, "{method} {path}: {there:?}");
        walked += 1;
    }
    assert!(walked >= 20, "{walked}");
    for path in ["/v1/runs", "/v1/schedules", "/v1/dead-letters", "/v1/log"] {
        let request = world.server.request_as(other.token.expose(), Method::GET, path, "");
        let listed = world.server.answer(request).await.ok(200).to_string();
        assert!(!listed.contains(&world.run) && !listed.contains("own"), "{path}: {listed}");
    }
}

/// The code that a call of gRPC with an empty message ends with.
pub(crate) async fn call(channel: &Channel, token: &str, path: &'static str) -> Code {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.expect("the server is there");
    let codec: ProstCodec<v1::Done, v1::Done> = ProstCodec::default();
    let mut request = Request::new(futures_util::stream::iter([v1::Done {}]));
    if !token.is_empty() {
        let value = format!("Bearer {token}").parse().expect("it is text");
        request.metadata_mut().insert("authorization", value);
    }
    let answer = client.streaming(request, PathAndQuery::from_static(path), codec).await;
    match answer {
        Err(status) => status.code(),
        // A refusal of a call is in its head.
        Ok(_) => Code::Ok,
    }
}

#[tokio::test]
async fn nobody_does_over_grpc_what_the_table_does_not_let_them() {
    let world = World::new().await;
    let url = format!("http://{}", world.server.address);
    let channel = Endpoint::from_shared(url).expect("it is an address").connect_lazy();
    for (path, right, reach) in GRPC {
        let is_refused = call(&channel, "", path).await == Code::Unauthenticated;
        assert_eq!(is_refused, *right != Right::Open, "{path}");
        for guest in &world.guests {
            let code = call(&channel, guest.token.expose(), path).await;
            let who = format!("{path} as {} of {:?}: {code:?}", guest.role, guest.tenant);
            assert_ne!(code, Code::Unauthenticated, "{who}");
            let is_refused = code == Code::PermissionDenied;
            assert_eq!(!is_refused, guest.may(*right, *reach), "{who}");
        }
    }
}
