//! The stream of workers when what is said is large, or the server cannot do its work.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};
use windlass::store::{MemoryStore, Store, StoreError};
use windlass::wire::{Wire as _, v1};
use windlass::{Ctx, FailureCode, RunState, TaskError, Windlass, Workflow};
use windlass_proto::v1::worker_reply::Reply;
use windlass_proto::v1::worker_service_server::{WorkerService, WorkerServiceServer};

use crate::served::Served;

/// How long something may take that happens by itself.
const SOON: Duration = Duration::from_secs(60);

/// As large as an input or an output may be, about.
const LARGE: usize = (1 << 20) - 100;

fn measure() -> Workflow<String> {
    let mut measure = Workflow::<String>::builder("measure");
    measure.task("length").run(async |ctx: Ctx<String>| Ok::<_, TaskError>(ctx.input().len()));
    measure.build().expect("a workflow")
}

/// Many large outputs, for one task that has them all for parents.
fn gather(parents: usize) -> Workflow<()> {
    let mut gather = Workflow::<()>::builder("gather");
    let large = |_: Ctx<()>| async { Ok::<_, TaskError>("x".repeat(LARGE)) };
    let parents: Vec<_> =
        (0..parents).map(|place| gather.task(format!("part-{place}")).run(large)).collect();
    let mut all = gather.task("all");
    for parent in &parents {
        all = all.after(parent);
    }
    all.run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    gather.build().expect("a workflow")
}

#[tokio::test]
async fn a_claim_larger_than_a_message_is_told_in_parts() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::new(Arc::clone(&store)).await;
    let windlass = Windlass::with_store(store);
    let measure = measure();
    let mut runs = Vec::new();
    for _ in 0..80 {
        runs.push(windlass.start(&measure, "x".repeat(LARGE)).await.unwrap());
    }
    let remote = Windlass::with_store(Arc::new(served.store()));
    let worker = remote.worker().register(&measure).slots(100).spawn().unwrap();
    for run in runs {
        let record = timeout(SOON, run.wait()).await.expect("it is run").unwrap();
        assert_eq!(record.state, RunState::Succeeded);
        let tasks = run.tasks().await.unwrap();
        assert_eq!(tasks[0].attempt, 1, "claimed once");
    }
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn a_task_too_large_for_any_message_fails_and_says_so_and_others_are_run() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::new(Arc::clone(&store)).await;
    let windlass = Windlass::with_store(store);
    let (gather, measure) = (gather(80), measure());
    let large = windlass.start(&gather, ()).await.unwrap();
    let remote = Windlass::with_store(Arc::new(served.store()));
    let worker = remote.worker().register(&gather).register(&measure).slots(100).spawn().unwrap();
    let record = timeout(SOON, large.wait()).await.expect("it fails").unwrap();
    assert_eq!(record.state, RunState::Failed);
    let tasks = large.tasks().await.unwrap();
    let all = tasks.iter().find(|task| task.name.as_str() == "all").unwrap();
    let failure = all.failure.as_ref().unwrap();
    assert_eq!(failure.code, FailureCode::Payload);
    assert!(failure.message.contains("that a server can tell a worker"), "{}", failure.message);
    let small = windlass.start(&measure, "x".to_owned()).await.unwrap();
    let record = timeout(SOON, small.wait()).await.expect("it is run").unwrap();
    assert_eq!(record.state, RunState::Succeeded);
    worker.drain().await.unwrap();
}

/// A server whose database is gone.
#[derive(Clone, Default)]
struct Unable {
    asked: Arc<AtomicU32>,
}

#[tonic::async_trait]
impl WorkerService for Unable {
    type WorkStream = Pin<Box<dyn Stream<Item = Result<v1::WorkerReply, Status>> + Send>>;

    async fn work(
        &self,
        request: Request<Streaming<v1::WorkerRequest>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let asked = Arc::clone(&self.asked);
        let replies = request.into_inner().map(move |request| {
            asked.fetch_add(1, Ordering::Relaxed);
            let error = StoreError::Unavailable("no database".to_owned()).to_wire();
            let reply = Some(Reply::Error(error));
            Ok(v1::WorkerReply { id: request?.id, reply, has_more: false })
        });
        Ok(Response::new(Box::pin(replies)))
    }
}

#[tokio::test]
async fn a_server_that_can_do_nothing_is_left_for_another() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::new(Arc::clone(&store)).await;
    let unable = Unable::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = tonic::service::Routes::new(WorkerServiceServer::new(unable.clone()));
    tokio::spawn(async move { axum::serve(listener, router.into_axum_router()).await });
    let windlass = Windlass::with_store(store);
    let measure = measure();
    // Which one a process begins with is drawn.
    for _ in 0..100 {
        let servers = format!("http://{address},{}", served.url());
        let remote = Windlass::connect_server(servers).unwrap();
        let run = windlass.start(&measure, "x".to_owned()).await.unwrap();
        let worker = remote.worker().register(&measure).spawn().unwrap();
        let record = timeout(SOON, run.wait()).await.expect("it is run").unwrap();
        assert_eq!(record.state, RunState::Succeeded);
        worker.drain().await.unwrap();
        if unable.asked.load(Ordering::Relaxed) > 0 {
            return;
        }
    }
    panic!("no process began with the first of two servers");
}
