//! Workers over gRPC.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::{
    Answer, Born, ChildStart, ClaimRequest, Completion, HandlerKey, Heartbeat, Hello, MemoryStore,
    NewRun, Refusal, Store, StoreError, WorkerInfo, WorkerLink,
};
use windlass::{Ctx, TaskError, Windlass, Workflow};
use windlass_core::{ClaimSeq, Decision, Payload, WorkerId};

use crate::served::Served;

fn greet() -> Workflow<String> {
    let mut greet = Workflow::<String>::builder("greet");
    greet.task("hello").run(async |ctx: Ctx<String>| Ok::<_, TaskError>(ctx.input().clone()));
    greet.build().expect("a workflow")
}

fn hello(worker: WorkerId) -> Hello {
    let definitions = vec![Arc::clone(greet().definition())];
    let queues = vec!["default".parse_queue()];
    let info = WorkerInfo { queues, ..WorkerInfo::default() };
    let lease = Duration::from_secs(10);
    Hello { worker, name: "one".into(), slots: 4, lease, definitions, info }
}

trait ParseQueue {
    fn parse_queue(&self) -> windlass_core::QueueName;
}

impl ParseQueue for str {
    fn parse_queue(&self) -> windlass_core::QueueName {
        windlass_core::QueueName::new(self).expect("a name")
    }
}

fn claim(worker: WorkerId, seq: u64, limit: usize) -> ClaimRequest {
    let hello = hello(worker);
    ClaimRequest {
        worker,
        seq: ClaimSeq(seq),
        queues: hello.info.queues.clone().into(),
        handlers: hello.workflows().into(),
        limit,
        ending: 0,
        is_poll: false,
        tenant: None,
    }
}

#[tokio::test]
async fn a_worker_claims_and_finishes_through_a_server() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::new(Arc::clone(&store)).await;
    let (remote, worker) = (served.store(), WorkerId::from_random(1));
    remote.join(hello(worker)).await.unwrap();
    let windlass = Windlass::with_store(Arc::clone(&store));
    let run = windlass.start(&greet(), "sailor".to_owned()).await.unwrap();
    let claimed = remote.claim(claim(worker, 1, 4)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let task = &claimed[0];
    assert_eq!((task.task.run, task.input.as_str()), (run.id(), "\"sailor\""));
    let held = windlass::store::Held { task: task.task, fence: task.fence };
    let beat = Heartbeat { worker, settled: ClaimSeq(1), held: vec![held], progress: Vec::new() };
    assert_eq!(remote.extend(beat).await.unwrap().lost, []);
    let decision = Decision::Succeed(Payload::from_json("1").unwrap());
    let done = Completion { task: task.task, fence: task.fence, decision };
    let answers = remote.finish(vec![done.clone(), done.clone()]).await.unwrap();
    assert_eq!(answers, [Answer::Accepted, Answer::AcceptedAlready]);
    run.wait().await.unwrap();
    let stale = Completion { fence: windlass_core::Fence(9), ..done };
    let answers = remote.finish(vec![stale]).await.unwrap();
    assert_eq!(answers, [Answer::Refused(Refusal::LeaseLost)]);
    remote.leave(worker).await.unwrap();
    let gone = remote.join(hello(worker)).await;
    assert_eq!(gone, Err(StoreError::LeaseLost(worker)));
}

#[tokio::test]
async fn a_child_keeps_no_metadata_that_only_the_engine_writes() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::new(Arc::clone(&store)).await;
    let (remote, worker) = (served.store(), WorkerId::from_random(1));
    remote.join(hello(worker)).await.unwrap();
    let windlass = Windlass::with_store(Arc::clone(&store));
    windlass.start(&greet(), "sailor".to_owned()).await.unwrap();
    let parent = remote.claim(claim(worker, 1, 1)).await.unwrap().remove(0);
    let metadata = [("windlass.schedule", "forged"), ("region", "eu")];
    let run = NewRun {
        id: windlass::RunId::of_child(parent.task.run, 7 << 64),
        workflow: parent.workflow.clone(),
        version: parent.version,
        tenant: parent.tenant.clone(),
        input: parent.input.clone(),
        key: None,
        delay: Duration::ZERO,
        priority: windlass_core::Priority::default(),
        metadata: metadata.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    };
    let child = run.id;
    let held = windlass::store::Held { task: parent.task, fence: parent.fence };
    let (call, definition) = (windlass_core::Call(1), Arc::clone(greet().definition()));
    let start = ChildStart { held, call, place: Some(0), run, definition };
    let born = remote.start_children(vec![start]).await.unwrap();
    assert!(matches!(born[0], Born::Started(_)), "{born:?}");
    let record = store.get_run(child).await.unwrap().expect("it was started");
    assert_eq!(record.metadata, [("region".to_owned(), "eu".to_owned())].into());
}

#[tokio::test]
async fn an_idle_worker_is_hinted_at_when_there_is_something() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::new(Arc::clone(&store)).await;
    let (remote, worker) = (served.store(), WorkerId::from_random(1));
    remote.join(hello(worker)).await.unwrap();
    let mut hints = remote.work_hints();
    assert!(remote.claim(claim(worker, 1, 4)).await.unwrap().is_empty());
    hints.take();
    let windlass = Windlass::with_store(Arc::clone(&store));
    windlass.start(&greet(), "sailor".to_owned()).await.unwrap();
    let hinted = tokio::time::timeout(Duration::from_secs(30), hints.changed()).await;
    assert!(hinted.is_ok(), "nobody hinted");
    assert_eq!(remote.claim(claim(worker, 2, 4)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_worker_that_said_no_hello_is_told_so() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::new(Arc::clone(&store)).await;
    let channel = served.channel();
    let mut client = windlass_proto::v1::worker_service_client::WorkerServiceClient::new(channel);
    let claim = windlass_proto::v1::Claim {
        worker: WorkerId::from_random(7).to_string(),
        ..windlass_proto::v1::Claim::default()
    };
    let request = windlass_proto::v1::WorkerRequest {
        id: 1,
        request: Some(windlass_proto::v1::worker_request::Request::Claim(claim)),
        takes_parts: false,
    };
    let stream = futures_util::stream::iter([request]);
    let mut replies = client.work(stream).await.unwrap().into_inner();
    let reply = replies.message().await.unwrap().unwrap();
    let Some(windlass_proto::v1::worker_reply::Reply::Error(error)) = reply.reply else {
        panic!("no error")
    };
    assert_eq!(error.message, "field worker: has not said hello on this stream");
    assert_eq!((reply.id, error.code.as_str()), (1, "WL-0002"));
}

#[tokio::test]
async fn a_claim_is_held_to_what_the_worker_joined_with() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::new(Arc::clone(&store)).await;
    let (remote, worker) = (served.store(), WorkerId::from_random(1));
    remote.join(Hello { slots: 1, ..hello(worker) }).await.unwrap();
    let windlass = Windlass::with_store(Arc::clone(&store));
    for _ in 0..3 {
        windlass.start(&greet(), "sailor".to_owned()).await.unwrap();
    }
    assert_eq!(remote.claim(claim(worker, 1, 3)).await.unwrap().len(), 1);
    let full = remote.claim(claim(worker, 2, 3)).await;
    assert!(matches!(full, Err(StoreError::Conflict(_))), "{full:?}");
    let ending = ClaimRequest { ending: 1, ..claim(worker, 3, 3) };
    assert_eq!(remote.claim(ending).await.unwrap().len(), 1, "one has ended in the worker");
    let unknown = HandlerKey {
        workflow: windlass_core::WorkflowName::new("gret").expect("a name"),
        version: windlass_core::Version::FIRST,
    };
    let request = ClaimRequest { handlers: [unknown].into(), ..claim(worker, 4, 1) };
    let refused = remote.claim(request).await;
    let Err(StoreError::NotFound(text)) = &refused else { panic!("{refused:?}") };
    assert!(text.contains("workflow \"gret\" version 1") && text.contains("\"greet\""), "{text}");
}
