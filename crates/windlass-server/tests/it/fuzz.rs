//! Messages that make no sense, thousands of them, to every method of every service.
//!
//! What is drawn has the right shape as often as not, so that it gets far: real ids beside wrong
//! ones, JSON beside what looks like it. Nothing of it may be an internal error or end a
//! connection that others use.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use prost_reflect::prost::Message as _;
use prost_reflect::prost::bytes::{Buf as _, BufMut as _};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    MethodDescriptor, Value,
};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use windlass::store::{LogFilter, MemoryStore, ScheduleFilter, ScheduleStore as _, Store as _};
use windlass::{Role, Secret, TaskError, Tenant, Windlass, Workflow};
use windlass_server::Access;
use windlass_server::token::mint;

use crate::served::Served;
use crate::tokens::token_of;

/// How deep messages are drawn.
const DEPTH_MAX: u32 = 5;

/// How many are under way at once.
const AT_ONCE: usize = 200;

/// What hostile clients put into texts.
const TEXTS: [&str; 14] = [
    "",
    "default",
    "a",
    "null",
    "{\"a\":[1,2,3]}",
    "\"\\ud83d\"",
    "1e999",
    "nul\0in it",
    "\u{1b}[2J\u{202e}<script>alert(1)</script>",
    "'; drop table windlass.runs; --",
    "../../etc/passwd",
    "00000000-0000-0000-0000-000000000000",
    "not-a-uuid",
    "\u{10ffff}",
];

#[tokio::test]
async fn ten_thousand_messages_that_make_no_sense_are_answered_clearly() {
    flood(10_000, 1).await;
}

mod long {
    #[tokio::test]
    #[ignore = "takes a while; among the long tests"]
    async fn a_hundred_thousand_messages_that_make_no_sense_are_answered_clearly() {
        super::flood(100_000, 2).await;
    }
}

#[tokio::test]
async fn ten_thousand_messages_of_one_tenant_change_nothing_of_another() {
    let store = Arc::new(MemoryStore::new());
    let windlass = Windlass::with_store(store.clone());
    let served = Served::with_access(store.clone(), Access::tokens()).await;
    let token = token_of(&windlass, Role::Admin, Some("acme")).await;
    let mut work = Workflow::<()>::builder("work");
    work.task("task").run(async |_| Ok::<_, TaskError>(()));
    let work = work.build().expect("it makes sense");
    let mut dice = Dice::new(3);
    dice.runs.clear();
    for number in 0..8 {
        let run = windlass.start(&work, ()).tenant("bolt").key(format!("key {number}"));
        dice.runs.push(run.await.expect("there is room").id().to_string());
    }
    let before = things_of(&store, &dice.runs).await;
    let refused = flood_as(&served, Some(&token), 10_000, &mut dice).await;
    let forbidden = refused.iter().filter(|it| it.code() == Code::PermissionDenied).count();
    let missing = refused.iter().filter(|it| it.code() == Code::NotFound).count();
    assert!(forbidden > 100 && missing > 100, "{forbidden} and {missing} of {}", refused.len());
    assert_eq!(things_of(&store, &dice.runs).await, before);
}

/// All that a run has that someone else might change.
async fn things_of(store: &MemoryStore, runs: &[String]) -> Vec<String> {
    let mut things = Vec::new();
    for run in runs {
        let run = run.parse().expect("it is an id");
        let record = store.get_run(run).await.expect("it is read");
        let tasks = store.list_tasks(run, None, 100).await.expect("they are read");
        let events = store.list_events(run, None, 100).await.expect("they are read");
        things.push(format!("{record:?} {tasks:?} {events:?}"));
    }
    let bolt = Tenant::new("bolt").ok();
    let schedules = ScheduleFilter { tenant: bolt.clone(), ..Default::default() };
    things.push(format!("{:?}", store.list_schedules(schedules).await));
    let log = LogFilter { tenant: bolt, ..Default::default() };
    things.push(format!("{:?}", store.list_log(log).await));
    things
}

#[tokio::test]
async fn whoever_shows_no_token_is_answered_by_no_method() {
    let store = Arc::new(MemoryStore::new());
    let served = Served::with_access(store, Access::tokens()).await;
    let nobody = mint(Role::Admin.into()).expect("there is randomness").text();
    for token in [None, Some(&nobody)] {
        let refused = flood_as(&served, token, 2_000, &mut Dice::new(4)).await;
        assert_eq!(refused.len(), 2_000);
        assert!(refused.iter().all(|it| it.code() == Code::Unauthenticated));
    }
}

async fn flood(count: u32, seed: u64) {
    let store = Arc::new(MemoryStore::new());
    let served = Served::new(store.clone()).await;
    let refused = flood_as(&served, None, count, &mut Dice::new(seed)).await;
    let is_denied =
        |it: &&Status| matches!(it.code(), Code::PermissionDenied | Code::Unauthenticated);
    assert_eq!(refused.iter().find(is_denied).map(Status::message), None);
    let refused = refused.len();
    assert!(
        refused > count as usize / 10,
        "only {refused} were refused: the messages show nothing"
    );
    let far = served.store();
    assert_eq!(far.now().await.is_ok(), store.now().await.is_ok(), "it still answers");
}

/// Says so many messages that make no sense; answers with what those were told that were refused.
async fn flood_as(
    served: &Served,
    token: Option<&Secret>,
    count: u32,
    dice: &mut Dice,
) -> Vec<Status> {
    let pool = DescriptorPool::decode(windlass_proto::v1::DESCRIPTORS).expect("our descriptors");
    let methods: Vec<MethodDescriptor> =
        pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
    assert!(!methods.is_empty());
    let channel = served.channel();
    let drawn = (0..count).map(|number| {
        let method = methods[dice.rng.usize(..methods.len())].clone();
        let bytes = if dice.rng.u8(..16) == 0 {
            (0..dice.rng.usize(..64)).map(|_| dice.rng.u8(..)).collect()
        } else {
            dice.message(&method.input(), 0).encode_to_vec()
        };
        let channel = channel.clone();
        async move {
            let told = timeout(call(&channel, token, &method, bytes)).await;
            told.err().inspect(|status| {
                assert!(is_clear(status), "message {number} to {}: {status:?}", method.full_name());
            })
        }
    });
    let told = futures_util::stream::iter(drawn).buffer_unordered(AT_ONCE);
    told.filter_map(std::future::ready).collect().await
}

/// Whether a status says that the message is at fault, and not the server.
fn is_clear(status: &Status) -> bool {
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::ResourceExhausted
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::DeadlineExceeded => true,
        // What tonic answers to bytes that are no message.
        Code::Internal => status.message().contains("decode"),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::AlreadyExists
        | Code::Unimplemented
        | Code::Unavailable
        | Code::DataLoss => false,
    }
}

/// Gives a call up that waits, which is no fault of the server. The time is long enough for a busy
/// machine: calls that are given up before the server has seen them end the connection.
async fn timeout(call: impl Future<Output = Result<(), Status>>) -> Result<(), Status> {
    tokio::time::timeout(Duration::from_secs(2), call).await.unwrap_or(Ok(()))
}

/// Says one message to a method and reads what comes first of the answer.
async fn call(
    channel: &Channel,
    token: Option<&Secret>,
    method: &MethodDescriptor,
    bytes: Vec<u8>,
) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let service = method.parent_service().full_name();
    let path = PathAndQuery::from_str(&format!("/{service}/{}", method.name())).expect("a path");
    let mut request = Request::new(futures_util::stream::iter([bytes]));
    if let Some(token) = token {
        let shown = format!("Bearer {}", token.expose()).parse().expect("it is ASCII");
        request.metadata_mut().insert("authorization", shown);
    }
    let answer = client.streaming(request, path, Bytes).await?;
    let mut answers = answer.into_inner();
    let first = answers.message().await?;
    if method.is_client_streaming()
        && let Some(reply) = first
    {
        check_reply(&reply)?;
    }
    Ok(())
}

/// An error within a stream is as clear as one that ends a call.
fn check_reply(bytes: &[u8]) -> Result<(), Status> {
    use windlass_proto::v1;
    let reply =
        v1::WorkerReply::decode(bytes).map_err(|error| Status::unknown(error.to_string()))?;
    match reply.reply {
        Some(v1::worker_reply::Reply::Error(error)) => Err(windlass::wire::status_of_error(error)),
        _ => Ok(()),
    }
}

/// What is drawn.
struct Dice {
    rng: fastrand::Rng,
    /// Ids that come again.
    runs: Vec<String>,
}

impl Dice {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let runs = (0..8).map(|_| uuid::Uuid::from_u128(rng.u128(..)).to_string()).collect();
        Dice { rng, runs }
    }

    fn message(&mut self, descriptor: &MessageDescriptor, depth: u32) -> DynamicMessage {
        let mut message = DynamicMessage::new(descriptor.clone());
        for field in descriptor.fields() {
            // Later ones of a oneof take the place of earlier ones.
            if self.rng.u8(..4) == 0 || depth > DEPTH_MAX {
                continue;
            }
            let value = self.value(&field, depth);
            message.set_field(&field, value);
        }
        message
    }

    fn value(&mut self, field: &FieldDescriptor, depth: u32) -> Value {
        if field.is_map() {
            let pairs = (0..self.rng.usize(..3))
                .map(|_| (MapKey::String(self.text(field.name())), Value::String(self.text(""))));
            return Value::Map(pairs.collect());
        }
        if field.is_list() {
            return Value::List((0..self.rng.usize(..3)).map(|_| self.one(field, depth)).collect());
        }
        self.one(field, depth)
    }

    fn one(&mut self, field: &FieldDescriptor, depth: u32) -> Value {
        match field.kind() {
            Kind::Message(descriptor) => Value::Message(self.message(&descriptor, depth + 1)),
            Kind::Enum(_) => Value::EnumNumber(self.rng.i32(-1..12)),
            Kind::String => Value::String(self.text(field.name())),
            Kind::Bool => Value::Bool(self.rng.bool()),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(self.number() as u32),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(self.number()),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(self.number() as i32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(self.number() as i64),
            Kind::Double => Value::F64(self.float()),
            Kind::Float => Value::F32(self.float() as f32),
            Kind::Bytes => Value::Bytes(vec![self.rng.u8(..); self.rng.usize(..9)].into()),
        }
    }

    fn number(&mut self) -> u64 {
        match self.rng.u8(..5) {
            0 => 0,
            1 => self.rng.u64(..20),
            2 => self.rng.u64(..100_000_000),
            3 => u64::MAX - self.rng.u64(..3),
            _ => self.rng.u64(..),
        }
    }

    fn float(&mut self) -> f64 {
        [0.0, 1.0, 2.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX][self.rng.usize(..7)]
    }

    fn text(&mut self, field: &str) -> String {
        let is_id = ["run", "id", "worker", "candidate", "signal", "up_to"].contains(&field);
        if is_id && self.rng.u8(..4) != 0 {
            return self.runs[self.rng.usize(..self.runs.len())].clone();
        }
        match self.rng.u8(..20) {
            0 => "x".repeat(self.rng.usize(..70_000)),
            1 => "[".repeat(20_000),
            _ => TEXTS[self.rng.usize(..TEXTS.len())].to_owned(),
        }
    }
}

/// Bytes as they are.
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Bytes {
        Bytes
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}
