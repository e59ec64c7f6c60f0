//! Clients that are silent, slow or too many: they are dropped, and the others do not notice.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::client::conn::http1;
use hyper::header::RETRY_AFTER;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use windlass::Role;
use windlass_server::{Access, ServerOptions};

use crate::support::{TestServer, single, soon};
use crate::tokens::token_of;

fn options() -> ServerOptions {
    ServerOptions::new(Access::insecure_dev())
}

/// Waits until the server has closed a connection; answers what it said.
async fn closed(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // A reset is an end as well.
    let _ = soon("the connection is closed", stream.read_to_end(&mut said)).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn clients_that_say_nothing_or_too_slowly_are_dropped_and_others_are_served() {
    let mut options = options();
    options.head_time_max = Duration::from_millis(200);
    let server = TestServer::with(options).await;
    let beginnings: [&[u8]; 5] = [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: local",
        b"PRI * HTTP/2.0\r\n",
        b"\x16\x03\x01",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    let mut streams = Vec::new();
    for beginning in beginnings {
        let mut stream = server.connect().await;
        stream.write_all(beginning).await.unwrap();
        streams.push(stream);
    }
    server.get("/healthz").await.ok(200);
    let last = streams.len() - 1;
    for (place, stream) in streams.iter_mut().enumerate() {
        let said = closed(stream).await;
        let is_served = said.starts_with("HTTP/1.1 200");
        assert_eq!(is_served, place == last, "{said}");
    }
    server.get("/healthz").await.ok(200);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn five_hundred_sockets_that_drip_are_dropped_and_who_has_a_token_does_not_notice() {
    let mut options = ServerOptions::new(Access::tokens());
    options.head_time_max = Duration::from_secs(2);
    options.request_time_max = Duration::from_secs(3);
    let server = TestServer::with(options).await;
    let token = token_of(&server.windlass, Role::Operator, None).await;
    let shown = format!("Host: localhost\r\nAuthorization: Bearer {}\r\n", token.expose());
    let sent = "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n[";
    // Nothing at all, a head without an end, and bodies without an end of someone and of nobody.
    let beginnings = [
        String::new(),
        format!("GET /v1/runs HTTP/1.1\r\n{shown}X-Long: "),
        format!("POST /v1/runs HTTP/1.1\r\n{shown}{sent}"),
        format!("POST /v1/runs HTTP/1.1\r\nHost: localhost\r\n{sent}"),
    ];
    let mut sockets = tokio::task::JoinSet::new();
    for number in 0..500 {
        let (mut stream, beginning) = (server.connect().await, beginnings[number % 4].clone());
        sockets.spawn(async move {
            stream.write_all(beginning.as_bytes()).await.unwrap();
            let (mut reading, mut writing) = stream.split();
            let dripping = async {
                while number % 4 != 0 && writing.write_all(b" ").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                std::future::pending::<()>().await;
            };
            let mut said = Vec::new();
            // A reset is an end as well.
            let closed = async { drop(reading.read_to_end(&mut said).await) };
            tokio::select! {
                () = dripping => {}
                () = closed => {}
            }
            (number, String::from_utf8_lossy(&said).into_owned())
        });
    }
    // From another address.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let stream = soon("it is let in", socket.connect(server.address)).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..50 {
        let request = server.request_as(token.expose(), Method::GET, "/v1/runs", "");
        let answer = soon("it is answered", sender.send_request(request)).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
    }
    while let Some(done) = soon("it is dropped", sockets.join_next()).await {
        let (number, said) = done.unwrap();
        let expected = [
            &[""][..],
            &["", "HTTP/1.1 408"],
            &["HTTP/1.1 503", "HTTP/1.1 504"],
            &["HTTP/1.1 401"],
        ];
        let is_expected = expected[number % 4].iter().any(|it| said.get(..12).unwrap_or("") == *it);
        assert!(is_expected, "{number}: {said}");
    }
}

#[tokio::test]
async fn a_flood_of_connections_displaces_the_quiet_and_not_the_busy() {
    let mut options = options();
    options.connections_max = 8;
    options.head_time_max = Duration::from_secs(600);
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let run = server.start_run("w", Value::Null).await;
    let path = format!("/v1/runs/{run}/events/stream");
    let request = server.request(Method::GET, &path).body(Default::default()).unwrap();
    let mut events = server.send(request).await.into_body();
    assert!(soon("it begins", events.frame()).await.is_some());
    let mut flood = Vec::new();
    for _ in 0..100 {
        flood.push(server.connect().await);
        if flood.len() % 10 == 0 {
            server.get("/healthz").await.ok(200);
        }
    }
    closed(&mut flood[0]).await;
    server.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok(204);
    let mut told = String::new();
    while let Some(frame) = soon("the stream goes on", events.frame()).await {
        let data = frame.expect("it was not displaced").into_data().unwrap();
        told.push_str(std::str::from_utf8(&data).unwrap());
    }
    assert!(told.contains("run_cancelled") && told.contains("event: end"), "{told}");
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_are_told_to_come_again() {
    let mut options = options();
    options.requests_max = 1;
    let server = TestServer::with(options).await;
    let mut slow = server.connect().await;
    let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 2\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let refused = async {
        loop {
            let answer = server.get("/v1/runs").await;
            if answer.status == 503 {
                break answer;
            }
        }
    };
    let refused = soon("a request is refused", refused).await;
    assert_eq!(refused.headers[RETRY_AFTER], "1");
    refused.problem(503, "WL-0007");
    assert!(refused.json()["is_retryable"].as_bool().unwrap());
    server.get("/healthz").await.ok(200);
    slow.write_all(b"}").await.unwrap();
    let mut said = [0; 12];
    soon("it is answered", slow.read_exact(&mut said)).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 422");
    server.get("/v1/runs").await.ok(200);
}

#[tokio::test]
async fn held_requests_leave_room_for_others_and_have_a_limit_of_their_own() {
    let mut options = options();
    options.requests_max = 1;
    options.held_max = 1;
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let run = server.start_run("w", Value::Null).await;
    let path = format!("/v1/runs/{run}/events/stream");
    let request = server.request(Method::GET, &path).body(Default::default()).unwrap();
    let mut events = server.send(request).await.into_body();
    assert!(soon("it begins", events.frame()).await.is_some());
    server.get(&path).await.problem(503, "WL-0007");
    drop(events);
    let again = async {
        while server.get(&format!("/v1/runs/{run}/wait?timeout_ms=1")).await.status != 200 {}
    };
    soon("whoever left makes room", again).await;
    let mut waiting = server.connect().await;
    let head =
        format!("GET /v1/runs/{run}/wait?timeout_ms=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    waiting.write_all(head.as_bytes()).await.unwrap();
    let held = async { while server.get(&path).await.status != 503 {} };
    soon("it is held", held).await;
    server.get("/v1/runs").await.ok(200);
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_what_it_is_sent_is_dropped() {
    let mut options = options();
    options.write_time_max = Duration::from_millis(200);
    options.head_time_max = Duration::from_secs(600);
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let run = server.start_run("w", json!("x".repeat(1_000_000))).await;
    let mut stream = server.connect().await;
    let request = format!("GET /v1/runs/{run} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.repeat(40).as_bytes()).await.unwrap();
    let dropped = async {
        // What is sent to who has gone is answered by a reset.
        while stream.write_all(b"\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("it is dropped", dropped).await;
    server.get("/healthz").await.ok(200);
}

#[tokio::test]
async fn bodies_share_a_limit_and_one_that_breaks_off_leaves_nothing_behind() {
    let mut options = options();
    options.body_bytes_max = 16_000_000;
    let server = TestServer::with(options).await;
    server.worker(single("w")).await;
    let mut stream = server.connect().await;
    let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 16000000\r\n\r\n{\"workflow\":";
    stream.write_all(head.as_bytes()).await.unwrap();
    // All but the last 20 bytes that there is memory for.
    stream.write_all(&vec![b' '; 15_999_968]).await.unwrap();
    let until = async |status: u16| {
        let body = json!({ "workflow": "w", "version": 1 });
        while server.post("/v1/runs", body.clone()).await.status != status {}
    };
    soon("there is no memory", until(503)).await;
    drop(stream);
    soon("there is memory again", until(201)).await;
}
