//! A proxy in front of PostgreSQL that cuts connections around commits.
//!
//! A commit whose answer is lost is the hardest case for a client: it must find out whether its
//! transaction exists. The proxy reads the messages of the protocol to find the commits.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{UnixListener, UnixStream};

/// The name of PostgreSQL's socket for the port in [`Proxy::url`].
const SOCKET: &str = ".s.PGSQL.5432";

/// Codes in the place of a protocol version that ask for encryption and are answered by one byte.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];

/// The longest message that the proxy forwards, to recognize a misread length.
const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// The number of connections that were cut, by moment.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    requested: AtomicU64,
    /// The commit did not reach the server: the transaction is rolled back.
    pub(crate) before: AtomicU64,
    /// The commit was sent, and the connection closed at once: the outcome is open.
    pub(crate) during: AtomicU64,
    /// The server committed, and the client does not learn of it.
    pub(crate) after: AtomicU64,
}

impl Cuts {
    /// Cuts the connection of the next commit.
    pub(crate) fn request(&self) {
        self.requested.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn total(&self) -> u64 {
        [&self.before, &self.during, &self.after].iter().map(|it| it.load(Ordering::Relaxed)).sum()
    }

    fn take(&self) -> bool {
        let one_less = |requested: u64| requested.checked_sub(1);
        self.requested.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// A running proxy.
pub(crate) struct Proxy {
    directory: PathBuf,
    database: PathBuf,
    pub(crate) cuts: Arc<Cuts>,
}

impl Proxy {
    /// Listens on a socket in a directory and forwards to the socket of the database.
    pub(crate) fn start(directory: &Path, database: PathBuf) -> anyhow::Result<Self> {
        let socket = directory.join(SOCKET);
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let cuts = Arc::new(Cuts::default());
        let proxy = Proxy {
            directory: directory.to_owned(),
            database: database.clone(),
            cuts: Arc::clone(&cuts),
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (database, cuts) = (database.clone(), Arc::clone(&cuts));
                // A connection that ends with an error is what clients of this test must survive.
                tokio::spawn(async move { serve(client, &database, &cuts).await });
            }
        });
        Ok(proxy)
    }

    /// The URL of the database through the proxy, for an application name that PostgreSQL shows.
    pub(crate) fn url(&self, direct: &str) -> anyhow::Result<String> {
        let host = |path: &Path| path.to_string_lossy().replace('/', "%2F");
        let directory = self.database.parent().context("the socket has no directory")?;
        let (encoded, port) = (host(directory), port(&self.database));
        let from = format!("@{encoded}:{port}/");
        anyhow::ensure!(direct.contains(&from), "{direct} does not contain {from}");
        Ok(direct.replace(&from, &format!("@{}:5432/", host(&self.directory))))
    }
}

fn port(socket: &Path) -> String {
    socket.extension().map(|port| port.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Serves one connection to its end.
async fn serve(mut client: UnixStream, database: &Path, cuts: &Cuts) -> io::Result<()> {
    let mut server = UnixStream::connect(database).await?;
    loop {
        let startup = read_body(&mut client).await?;
        write_body(&mut server, &startup).await?;
        let code = startup.first_chunk::<4>().map(|code| u32::from_be_bytes(*code));
        if !code.is_some_and(|code| ENCRYPTION_REQUESTS.contains(&code)) {
            break;
        }
        client.write_u8(server.read_u8().await?).await?;
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    // Set once the answer to the commit must not reach the client.
    let is_answer_lost = AtomicBool::new(false);
    tokio::select! {
        ended = forward_requests(from_client, to_server, cuts, &is_answer_lost) => ended,
        ended = forward_answers(from_server, to_client, &is_answer_lost) => ended,
    }
}

async fn forward_requests(
    client: impl AsyncRead + Unpin,
    server: impl AsyncWrite + Unpin,
    cuts: &Cuts,
    is_answer_lost: &AtomicBool,
) -> io::Result<()> {
    let (mut client, mut server) = (BufReader::new(client), BufWriter::new(server));
    loop {
        let (kind, body) = read_message(&mut client).await?;
        let moment = (is_commit(kind, &body) && cuts.take()).then(|| fastrand::u8(..3));
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        match moment {
            None => write_message(&mut server, kind, &body).await?,
            Some(0) => {
                server.flush().await?;
                count(&cuts.before);
                return Ok(());
            }
            Some(1) => {
                write_message(&mut server, kind, &body).await?;
                server.flush().await?;
                count(&cuts.during);
                return Ok(());
            }
            Some(_) => {
                is_answer_lost.store(true, Ordering::Relaxed);
                write_message(&mut server, kind, &body).await?;
                count(&cuts.after);
            }
        }
        if client.buffer().is_empty() {
            server.flush().await?;
        }
    }
}

async fn forward_answers(
    server: impl AsyncRead + Unpin,
    client: impl AsyncWrite + Unpin,
    is_answer_lost: &AtomicBool,
) -> io::Result<()> {
    let (mut server, mut client) = (BufReader::new(server), BufWriter::new(client));
    loop {
        let (kind, body) = read_message(&mut server).await?;
        if is_commit_complete(kind, &body) && is_answer_lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        write_message(&mut client, kind, &body).await?;
        if server.buffer().is_empty() {
            client.flush().await?;
        }
    }
}

/// Returns whether a client's message is a simple query that commits.
fn is_commit(kind: u8, body: &[u8]) -> bool {
    kind == b'Q' && body.get(..6).is_some_and(|text| text.eq_ignore_ascii_case(b"commit"))
}

/// Returns whether a server's message confirms a commit.
fn is_commit_complete(kind: u8, body: &[u8]) -> bool {
    kind == b'C' && body == b"COMMIT\0"
}

async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await?;
    Ok((kind, read_body(stream).await?))
}

async fn read_body(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let is_valid = (4..=MESSAGE_BYTES_MAX).contains(&length);
    let length =
        if is_valid { length as usize - 4 } else { return Err(io::ErrorKind::InvalidData.into()) };
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

async fn write_message(
    stream: &mut (impl AsyncWrite + Unpin),
    kind: u8,
    body: &[u8],
) -> io::Result<()> {
    stream.write_u8(kind).await?;
    write_body(stream, body).await
}

async fn write_body(stream: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len() + 4).map_err(|_| io::ErrorKind::InvalidData)?;
    stream.write_u32(length).await?;
    stream.write_all(body).await
}
