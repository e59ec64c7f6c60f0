//! An outbox: an order is stored and its event started in one transaction, and a task forwards
//! the event to somebody's HTTP endpoint, with retries, until it is taken.
//!
//! There is no table of events to poll and no publisher to run: the run is the entry in the
//! outbox. It exists if and only if the order does. The endpoint may be asked more than once (its
//! answer may be lost), so each request has a key that is the same every time.
//!
//! It runs on a private PostgreSQL, whose programs (14 or newer) must be installed. The endpoint
//! is a small server of its own here, which is out of order at first.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::NoTls;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, Error, RetryPolicy, RunState, TaskError, Windlass, Workflow};

/// What the world is told of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OrderPlaced {
    order: i64,
    cents: i64,
}

/// How long one request may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Forwards an event. Whatever may be otherwise the next time is an error like any other, which is
/// retried; what will not be, such as an event that the endpoint does not understand, is permanent.
async fn forward(ctx: Ctx<OrderPlaced>, endpoint: SocketAddr) -> Result<u16, TaskError> {
    let body = serde_json::to_string(ctx.input()).map_err(TaskError::new)?;
    // The same in every attempt of this task, and of no other.
    let key = format!("{}/{}", ctx.run_id(), ctx.task());
    let status = tokio::time::timeout(ANSWER_MAX, post(endpoint, &key, &body)).await;
    let status =
        status.map_err(|_| TaskError::new("no answer in time"))?.map_err(TaskError::new)?;
    match status {
        200..300 => Ok(status),
        // Too early, too slow, too many: ask again. The rest of the 4xx stays wrong.
        408 | 425 | 429 => Err(TaskError::new(format!("the endpoint answered {status}"))),
        400..500 => Err(TaskError::new(format!("the endpoint answered {status}")).permanent()),
        _ => Err(TaskError::new(format!("the endpoint answered {status}"))),
    }
}

fn outbox(endpoint: SocketAddr) -> Result<Workflow<OrderPlaced>, Error> {
    let mut order_placed = Workflow::<OrderPlaced>::builder("order-placed");
    order_placed
        .task("forward")
        // In real life from a second on, and for a day.
        .retry(RetryPolicy::fixed(Duration::from_millis(50)).attempts(20))
        .run(move |ctx| forward(ctx, endpoint));
    order_placed.build()
}

/// Sends a request and answers the status. In place of the HTTP client that you have.
async fn post(endpoint: SocketAddr, key: &str, body: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect(endpoint).await?;
    let length = body.len();
    let request = format!(
        "POST /orders HTTP/1.1\r\nhost: {endpoint}\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.ok_or_else(|| std::io::Error::other("the endpoint hung up without an answer"))
}

/// Somebody else's endpoint: the first two requests fail, and the answer to the third is lost
/// although what it asks for is done. A key that was seen is not handled again.
#[derive(Default)]
struct Endpoint {
    requests: Mutex<u32>,
    /// How often each key was sent once it was heard.
    keys: Mutex<BTreeMap<String, u32>>,
}

impl Endpoint {
    /// What it answers; nothing if the connection breaks.
    fn handle<B>(&self, request: &Request<B>) -> Option<StatusCode> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests += 1;
        if *requests <= 2 {
            return Some(StatusCode::SERVICE_UNAVAILABLE);
        }
        let Some(key) = request.headers().get("idempotency-key").and_then(|it| it.to_str().ok())
        else {
            return Some(StatusCode::BAD_REQUEST);
        };
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        *keys.entry(key.to_owned()).or_default() += 1;
        (*requests > 3).then_some(StatusCode::OK)
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let endpoint = Arc::clone(&self);
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let status = endpoint.handle(&request);
                    async move {
                        let status = status.ok_or("the line is dead")?;
                        let mut response = Response::new(String::new());
                        *response.status_mut() = status;
                        Ok::<_, &str>(response)
                    }
                });
                let server = hyper::server::conn::http1::Builder::new();
                // Whoever hangs up has heard enough.
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

async fn run(directory: PathBuf) -> anyhow::Result<()> {
    let endpoint = Arc::new(Endpoint::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let outbox = outbox(listener.local_addr()?)?;
    let server = tokio::spawn(Arc::clone(&endpoint).serve(listener));

    let postgres = EmbeddedOptions::new(directory).durable(false).temporary(true).start().await?;
    let options = PostgresOptions::new(postgres.url()).migrate(true);
    let windlass = Windlass::connect(options).await?;
    let worker = windlass.worker().register(&outbox).spawn()?;
    let (mut client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await?;
    let connection = tokio::spawn(connection);
    client.batch_execute("create table orders (id bigint primary key, cents bigint)").await?;

    let store = "insert into orders (id, cents) values ($1, $2)";
    // The order and its event are committed together.
    let placed = OrderPlaced { order: 9_182, cents: 4_200 };
    let mut transaction = client.transaction().await?;
    transaction.execute(store, &[&placed.order, &placed.cents]).await?;
    let sent = windlass.start(&outbox, placed).in_transaction(&mut transaction).await?;
    transaction.commit().await?;

    // Of an order that is not stored after all, nobody is told.
    let refused = OrderPlaced { order: 9_183, cents: 0 };
    let mut transaction = client.transaction().await?;
    transaction.execute(store, &[&refused.order, &refused.cents]).await?;
    let unsent = windlass.start(&outbox, refused).in_transaction(&mut transaction).await?;
    transaction.rollback().await?;

    let ended = sent.wait_timeout(Duration::from_secs(30)).await?;
    ensure!(ended.state == RunState::Succeeded, "the event is {}", ended.state);
    ensure!(unsent.get().await.is_err(), "an event without its order");
    let forward = &sent.tasks().await?[0];
    let keys = endpoint.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let expected = BTreeMap::from([(format!("{}/forward", sent.id()), 2)]);
    ensure!(forward.attempt == 4 && keys == expected, "{} attempts, {keys:?}", forward.attempt);
    println!("order 9182 was told once, by attempt {} of its event", forward.attempt);

    worker.drain().await?;
    server.abort();
    drop(client);
    connection.await.context("the connection ended")??;
    drop(windlass);
    postgres.stop().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let place = std::env::temp_dir().join(format!("windlass-outbox-{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    // PostgreSQL does not run as root: its own account must get there.
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o711))?;
    let result = run(place.join("database")).await;
    std::fs::remove_dir_all(&place)?;
    result
}
