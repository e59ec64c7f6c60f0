//! Workers that are asked to end: real processes, real signals, real probes.

#[cfg(all(feature = "embedded", feature = "postgres"))]
mod process;
#[cfg(all(feature = "embedded", feature = "postgres"))]
mod sequence;

mod health;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// How long anything here may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The status and the body that a worker's health endpoint answers.
fn ask(address: SocketAddr, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    send(address, format!("{method} {path} HTTP/1.1\r\nHost: worker\r\n\r\n").as_bytes())
}

fn send(address: SocketAddr, request: &[u8]) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let other = || std::io::Error::other(format!("not an answer: {text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(other)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(other)?, body.to_owned()))
}

/// Waits until it is so; asked again every few milliseconds.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
