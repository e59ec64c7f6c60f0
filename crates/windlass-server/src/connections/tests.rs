//! What requests know of the connection they come by, and clients that say who they are.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use windlass::remote::{RemoteOptions, RemoteStore};
use windlass::store::{QueueStore as _, StoreError};
use windlass::{Ctx, ErrorKind, RunState, TaskError, Windlass, Workflow};

use super::*;
use crate::identity::{Access, Door};
use crate::problem::Problem;
use crate::quotas::Quotas;
use crate::tls::TlsOptions;
use crate::{grpc, http};

/// How long anything may take that is expected to happen.
const DEADLINE: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// A directory that is gone with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("windlass-connections-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;

        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serves a router for as long as the test takes; answers its port.
async fn serve_router(router: Router, options: ServerOptions, ending: CancellationToken) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let listener = Listener::from(listener).encrypted(options.tls.as_ref());
    tokio::spawn(async move {
        serve(listener, router, &options, ending, std::future::pending()).await;
    });
    port
}

#[tokio::test]
async fn a_request_knows_the_certificate_by_which_its_client_was_let_in() {
    let directory = Directory::new("peer");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let sign = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &authority).unwrap(), key)
    };
    let (certificate, key) = sign("localhost");
    let root = directory.write("root.pem", &authority.pem());
    let key = directory.write("server.key", &key.serialize_pem());
    let files = TlsOptions::new(directory.write("server.pem", &certificate.pem()), key);
    let mut options = ServerOptions::new(Access::insecure_dev());
    options.tls = Some(Tls::load(files.client_authority(root)).unwrap());
    let told = async |Extension(whence): Extension<Whence>| whence.as_str().to_owned();
    let router = Router::new().route("/", get(told));
    let port = serve_router(router, options, CancellationToken::new()).await;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let (certificate, key) = sign("worker-7.acme.test");
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let mut stream = stream.expect("both are believed");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut said = String::new();
    soon("it answers", stream.read_to_string(&mut said)).await.unwrap();
    assert!(
        said.starts_with("HTTP/1.1 200") && said.ends_with("\r\n127.0.0.1 as worker-7.acme.test"),
        "{said}"
    );
}

/// A server that lets in who has one of some tokens, and remembers who came.
#[derive(Clone, Default)]
struct Doorkeeper {
    tokens: Arc<Mutex<Vec<String>>>,
    /// The path and the token of every request.
    seen: Arc<Mutex<Vec<(String, String)>>>,
}

impl Doorkeeper {
    async fn start(tokens: &[&str]) -> (Self, Windlass, String) {
        let keeper = Doorkeeper::default();
        keeper.let_in(tokens);
        let windlass = Windlass::memory();
        let (options, ending) =
            (ServerOptions::new(Access::insecure_dev()), CancellationToken::new());
        let store = windlass.store();
        let quotas = Arc::new(Quotas::new(Arc::clone(store)));
        let workers = Arc::new(crate::workers::LiveWorkers::new(&options));
        let (grpc, doors) = grpc::router(store, &quotas, &workers, &options, &ending);
        let door = Arc::new(Door::new(Access::insecure_dev(), Arc::clone(store)));
        let parts = http::Parts { door, quotas, workers, doors, grpc };
        let router = http::router(windlass.clone(), options.clone(), parts, ending.clone());
        let at_door = keeper.clone();
        let router =
            router.layer(from_fn(move |request, next| at_door.clone().pass(request, next)));
        let port = serve_router(router, options, ending).await;
        (keeper, windlass, format!("http://127.0.0.1:{port}"))
    }

    fn let_in(&self, tokens: &[&str]) {
        *self.tokens.lock().unwrap() = tokens.iter().map(|it| format!("Bearer {it}")).collect();
    }

    async fn pass(self, request: Request, next: Next) -> Response {
        let header = request.headers().get("authorization").cloned();
        let token = header.as_ref().and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
        let is_known = self.tokens.lock().unwrap().contains(&token);
        self.seen.lock().unwrap().push((request.uri().path().to_owned(), token));
        if is_known {
            return next.run(request).await;
        }
        let problem = Problem::new(ErrorKind::Unauthenticated, "nobody has this token");
        problem.to_grpc().into_http::<Body>()
    }

    /// How often a path was asked for with a token.
    fn count(&self, path: &str, token: &str) -> usize {
        let token = format!("Bearer {token}");
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(at, with)| at.ends_with(path) && *with == token).count()
    }
}

fn nothing() -> Workflow<()> {
    let mut nothing = Workflow::<()>::builder("nothing");
    nothing.task("only").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    nothing.build().unwrap()
}

#[tokio::test]
async fn every_call_and_the_stream_of_workers_carry_the_token() {
    let (keeper, _, url) = Doorkeeper::start(&["right"]).await;
    for (wrong, why) in [
        (RemoteOptions::new(&url), "is shown none: put one into a file"),
        (RemoteOptions::new(&url).token("wrong"), "nobody has this token"),
    ] {
        let store = RemoteStore::connect(wrong).unwrap();
        let error = soon("it is answered", store.list_queues()).await.unwrap_err();
        let is_why = matches!(&error, StoreError::Unauthenticated(text) if text.contains(why));
        assert!(is_why, "{why}: {error}");
    }
    let far = Windlass::connect_server(RemoteOptions::new(&url).token("right")).unwrap();
    let nothing = nothing();
    let worker = far.worker().register(&nothing).spawn().unwrap();
    let run = far.start(&nothing, ()).await.unwrap();
    let ended = soon("it is run", run.wait()).await.unwrap();
    assert_eq!(ended.state, RunState::Succeeded);
    soon("it drains", worker.drain()).await.unwrap();
    assert_eq!(keeper.count("WorkerService/Work", "right"), 1);
    let seen = keeper.seen.lock().unwrap();
    let without = seen.iter().filter(|(_, token)| token.is_empty()).count();
    assert_eq!(without, 1, "only who had none: {seen:?}");
}

#[tokio::test]
async fn a_worker_moves_to_a_new_token_before_the_old_one_is_taken_away() {
    let directory = Directory::new("rotate");
    let file = directory.write("token", "old\n");
    let (keeper, windlass, url) = Doorkeeper::start(&["old", "new"]).await;
    let far = Windlass::connect_server(RemoteOptions::new(&url).token_file(&file)).unwrap();
    let nothing = nothing();
    let worker = far.worker().register(&nothing).spawn().unwrap();
    let run = windlass.start(&nothing, ()).await.unwrap();
    soon("it is run", run.wait()).await.unwrap();
    assert_eq!(keeper.count("WorkerService/Work", "old"), 1);
    directory.write("token", "new\n");
    let moves = async {
        while keeper.count("WorkerService/Work", "new") == 0 {
            let run = windlass.start(&nothing, ()).await.unwrap();
            let ended = run.wait().await.unwrap();
            assert_eq!(
                (ended.state, run.tasks().await.unwrap()[0].attempt),
                (RunState::Succeeded, 1)
            );
        }
    };
    soon("it says the new one", moves).await;
    keeper.let_in(&["new"]);
    let run = far.start(&nothing, ()).await.unwrap();
    soon("it is run", run.wait()).await.unwrap();
    assert_eq!(keeper.count("WorkerService/Work", "old"), 1, "it is not said any more");
    soon("it drains", worker.drain()).await.unwrap();
}

#[tokio::test]
async fn a_worker_with_a_wrong_token_does_not_hammer_and_works_once_its_file_is_mended() {
    let directory = Directory::new("mend");
    let file = directory.write("token", "wrong");
    let (keeper, windlass, url) = Doorkeeper::start(&["right"]).await;
    let far = Windlass::connect_server(RemoteOptions::new(&url).token_file(&file)).unwrap();
    let nothing = nothing();
    let worker = far.worker().register(&nothing).spawn().unwrap();
    let run = windlass.start(&nothing, ()).await.unwrap();
    let refused = async {
        while keeper.count("WorkerService/Work", "wrong") < 5 {
            tokio::task::yield_now().await;
        }
    };
    let began = tokio::time::Instant::now();
    soon("it is refused", refused).await;
    assert!(began.elapsed() > Duration::from_millis(500), "it waits longer each time");
    directory.write("token", "right");
    let ended = soon("it is run", run.wait()).await.unwrap();
    assert_eq!(ended.state, RunState::Succeeded);
    soon("it drains", worker.drain()).await.unwrap();
}
