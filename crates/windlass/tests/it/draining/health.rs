//! What the health endpoints answer, and what they bear.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use windlass::{ErrorKind, TaskError, Windlass, WorkerBuilder, WorkerHandle, Workflow};

use super::{SECOND, ask, send, until};

const ANYWHERE: &str = "127.0.0.1:0";

fn worker(windlass: &Windlass) -> WorkerBuilder {
    let mut nothing = Workflow::<()>::builder("nothing");
    nothing.task("work").run(async |_| Ok::<_, TaskError>(()));
    windlass.worker().register(&nothing.build().unwrap()).name("mail-1")
}

async fn ready() -> (WorkerHandle, SocketAddr) {
    let worker = worker(&Windlass::memory()).health(ANYWHERE).spawn().unwrap();
    let address = worker.health_address().unwrap();
    until("ready", async || ask(address, "GET", "/health/ready").unwrap().0 == 200).await;
    (worker, address)
}

#[tokio::test]
async fn a_worker_says_who_and_how_it_is() {
    let (worker, address) = ready().await;
    for path in ["/health/ready", "/health/live"] {
        let (status, body) = ask(address, "GET", path).unwrap();
        assert_eq!(status, 200);
        let start = r#"{"state":"ready","worker":""#;
        let end = r#"","name":"mail-1","running":0}"#;
        assert!(body.starts_with(start) && body.ends_with(end), "{body}");
    }
    assert_eq!(ask(address, "HEAD", "/health/live").unwrap(), (200, String::new()));
    worker.drain().await.unwrap();
    assert!(ask(address, "GET", "/health/live").is_err(), "the address is free again");
}

#[tokio::test]
async fn what_is_not_asked_for_rightly_is_refused_and_drains_nothing() {
    let (worker, address) = ready().await;
    let drain = "GET /admin/drain HTTP/1.1\r\n\r\n";
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(drain.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
    assert!(text.contains("\r\nallow: POST\r\n"), "{text}");
    assert_eq!(ask(address, "POST", "/health/live").unwrap().0, 405);
    assert_eq!(ask(address, "GET", "/").unwrap().0, 404);
    let page = b"POST /admin/drain HTTP/1.1\r\nHost: w\r\nOrigin: http://evil.example\r\n\r\n";
    assert_eq!(send(address, page).unwrap().0, 403);
    assert_eq!(ask(address, "GET", "/health/ready").unwrap().0, 200);
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn a_request_to_drain_is_answered_at_once_and_ends_the_worker() {
    let (worker, address) = ready().await;
    let (status, body) = ask(address, "POST", "/admin/drain").unwrap();
    assert_eq!(status, 202);
    assert!(body.contains(r#""state":"draining""#), "{body}");
    worker.ended().await.unwrap();
}

#[tokio::test]
async fn noise_and_slow_clients_harm_nothing() {
    let (worker, address) = ready().await;
    // Not HTTP.
    let mut noise = TcpStream::connect(address).unwrap();
    noise.write_all(&[0x16, 0x03, 0x01, 0, 5, 0xff, b'\r', b'\n', b'\r', b'\n']).unwrap();
    let mut answer = Vec::new();
    // Closed by them: with an answer, with nothing, or in the middle of what was sent.
    let _ = noise.read_to_end(&mut answer);
    // More than a head may have.
    let long = format!("GET /health/live HTTP/1.1\r\nCookie: {}\r\n\r\n", "x".repeat(100_000));
    let is_taken = send(address, long.as_bytes()).is_ok_and(|(status, _)| status == 200);
    assert!(!is_taken, "100 kB of headers");
    // As many as may be connected, and more, none of which ever asks anything.
    let began = Instant::now();
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(TcpStream::connect(address).unwrap());
    }
    assert_eq!(ask(address, "GET", "/health/live").unwrap().0, 200);
    assert!(began.elapsed() < 10 * SECOND, "{:?}", began.elapsed());
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn the_oldest_silent_connection_gives_way_to_a_probe() {
    let (worker, address) = ready().await;
    // As many as may be connected.
    let silent: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(ask(address, "GET", "/health/live").unwrap().0, 200);
    // Nobody waited until the time of all of them was over.
    let mut newest = silent.last().unwrap();
    newest.set_nonblocking(true).unwrap();
    let error = newest.read(&mut [0]).expect_err("it is open, and nothing is said on it");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    let mut oldest = &silent[0];
    assert_eq!(oldest.read(&mut [0]).unwrap_or_default(), 0, "it was closed");
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_named() {
    let windlass = Windlass::memory();
    let other = TcpListener::bind(ANYWHERE).unwrap();
    let taken = other.local_addr().unwrap().to_string();
    for address in [taken.as_str(), "no port", "127.0.0.1:99999"] {
        let error = worker(&windlass).health(address).spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        let complaint = format!("health address {address:?} cannot be used: ");
        assert!(error.to_string().starts_with(&complaint), "{error}");
    }
    let error = worker(&windlass).remote_drain().spawn().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
}

#[tokio::test]
async fn a_worker_whose_loop_hangs_is_not_alive() {
    let mut hang = Workflow::<()>::builder("hang");
    hang.task("work").run(async |_| {
        // A handler that blocks the only thread of the runtime, for longer than three
        // leases and five seconds.
        std::thread::sleep(Duration::from_secs(13));
        Ok::<_, TaskError>(())
    });
    let hang = hang.build().unwrap();
    let windlass = Windlass::memory();
    let worker =
        windlass.worker().register(&hang).lease(2 * SECOND).health(ANYWHERE).spawn().unwrap();
    let address = worker.health_address().unwrap();
    let probe = std::thread::spawn(move || {
        let began = Instant::now();
        loop {
            let (status, body) = ask(address, "GET", "/health/live").unwrap();
            if status == 503 {
                return (began.elapsed(), body, ask(address, "GET", "/health/ready").unwrap().0);
            }
            assert!(began.elapsed() < 14 * SECOND, "nothing was noticed: {body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    windlass.start(&hang, ()).await.unwrap();
    while !probe.is_finished() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (after, body, ready) = probe.join().unwrap();
    assert!(after > 11 * SECOND, "{after:?}: it may have been a pause");
    assert!(body.contains(r#""state":"stuck""#) && body.contains("has not turned"), "{body}");
    assert_eq!(ready, 503);
}

#[cfg(all(feature = "embedded", feature = "postgres"))]
#[tokio::test]
async fn a_database_that_is_away_for_longer_than_a_lease_makes_a_worker_unready() {
    use crate::database::TestDatabase;

    let database = TestDatabase::new().await;
    let windlass = Windlass::connect(database.url().as_str()).await.unwrap();
    let worker = worker(&windlass).lease(2 * SECOND).health(ANYWHERE).spawn().unwrap();
    let address = worker.health_address().unwrap();
    let ready = move || ask(address, "GET", "/health/ready").unwrap();
    until("ready", async || ready().0 == 200).await;

    let neighbour = TestDatabase::bare().await;
    let admin = neighbour.client().await;
    let name = database.name();
    let began = Instant::now();
    admin.batch_execute(&format!("alter database {name} allow_connections false")).await.unwrap();
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1";
    admin.execute(cut, &[&name]).await.unwrap();
    until("not ready", async || ready().0 == 503).await;
    assert!(began.elapsed() >= 2 * SECOND, "a blip is none: {:?}", began.elapsed());
    let (_, body) = ready();
    assert!(body.contains(r#""state":"unreachable""#) && body.contains("reason"), "{body}");
    assert_eq!(ask(address, "GET", "/health/live").unwrap().0, 200, "restarting mends nothing");

    admin.batch_execute(&format!("alter database {name} allow_connections true")).await.unwrap();
    until("ready again", async || ready().0 == 200).await;
    worker.drain().await.unwrap();
}
