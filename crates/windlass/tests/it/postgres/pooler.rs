//! A pooler that gives out a server connection for one transaction at a time, as PgBouncer
//! in transaction mode does, and that never gives out the same one twice in a row.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// How many connections to the server there are, for all clients.
const SERVERS: usize = 3;

/// Listens on a socket of its own; gone with the test.
pub(crate) struct Pooler {
    directory: PathBuf,
    database: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    idle: Mutex<VecDeque<UnixStream>>,
    returned: tokio::sync::Notify,
    /// How many answers to commits are still to be lost.
    commits_to_lose: AtomicU32,
    ignores_options: AtomicBool,
    is_frozen: AtomicBool,
    thawed: tokio::sync::Notify,
}

impl Pooler {
    /// A pooler in front of a database on a socket.
    pub(crate) async fn start(url: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let config: tokio_postgres::Config = url.parse().expect("it is an address");
        let tokio_postgres::config::Host::Unix(host) = &config.get_hosts()[0] else {
            panic!("{url} is no socket");
        };
        let socket = host.join(format!(".s.PGSQL.{}", config.get_ports()[0]));
        let database = config.get_dbname().expect("it names a database").to_owned();
        let mut idle = VecDeque::new();
        for _ in 0..SERVERS {
            let mut stream = UnixStream::connect(&socket).await.expect("the server is there");
            log_in(&mut stream, &database).await.expect("the server lets us in");
            idle.push_back(stream);
        }
        let shared = Arc::new(Shared {
            idle: Mutex::new(idle),
            returned: tokio::sync::Notify::new(),
            commits_to_lose: AtomicU32::new(0),
            ignores_options: AtomicBool::new(false),
            is_frozen: AtomicBool::new(false),
            thawed: tokio::sync::Notify::new(),
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-pooler-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&directory).expect("it can be made");
        let listener = UnixListener::bind(directory.join(".s.PGSQL.5432")).expect("it listens");
        let clients = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&clients);
                tokio::spawn(async move { serve(client, &shared).await });
            }
        });
        Pooler { directory, database, shared, task }
    }

    pub(crate) fn url(&self) -> String {
        let host = self.directory.to_string_lossy().replace('/', "%2F");
        format!("postgres://windlass@{host}:5432/{}", self.database)
    }

    /// Drops the settings of clients without a word, as it can be told to.
    pub(crate) fn ignore_options(&self) {
        self.shared.ignores_options.store(true, Ordering::SeqCst);
    }

    /// Passes the next commits on and loses their answers, with the clients' connections.
    pub(crate) fn lose_commits(&self, count: u32) {
        self.shared.commits_to_lose.store(count, Ordering::SeqCst);
    }

    /// Passes nothing on any more, and closes nothing.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        self.shared.is_frozen.store(is_frozen, Ordering::SeqCst);
        self.shared.thawed.notify_waiters();
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Shared {
    async fn thaw(&self) {
        loop {
            let thawed = self.thawed.notified();
            if !self.is_frozen.load(Ordering::SeqCst) {
                return;
            }
            thawed.await;
        }
    }

    fn loses(&self, kind: u8, body: &[u8]) -> bool {
        let one_less = |count: u32| count.checked_sub(1);
        (kind, body) == (b'Q', b"commit\0".as_slice())
            && self
                .commits_to_lose
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                .is_ok()
    }

    /// The server connection that was idle for the longest time.
    async fn take(&self) -> UnixStream {
        loop {
            let returned = self.returned.notified();
            if let Some(server) = self.idle.lock().expect("no panic").pop_front() {
                return server;
            }
            returned.await;
        }
    }

    fn give_back(&self, server: UnixStream) {
        self.idle.lock().expect("no panic").push_back(server);
        self.returned.notify_waiters();
    }
}

/// One client, to its end.
async fn serve(mut client: UnixStream, shared: &Shared) -> io::Result<()> {
    let startup = read_body(&mut client).await?;
    shared.thaw().await;
    if startup.starts_with(&80_877_102_u32.to_be_bytes()) {
        // To cancel something; a pooler would look up whose it is.
        return Ok(());
    }
    let has_options = startup.windows(9).any(|it| it == b"\0options\0");
    if has_options && !shared.ignores_options.load(Ordering::SeqCst) {
        let body = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
        return write_message(&mut client, b'E', body).await;
    }
    write_message(&mut client, b'R', &0_u32.to_be_bytes()).await?;
    write_message(&mut client, b'Z', b"I").await?;
    let mut server = None;
    let served = converse(&mut client, shared, &mut server).await;
    if let Some(mut server) = server {
        // A client that goes away in the middle leaves a transaction open.
        write_message(&mut server, b'Q', b"rollback\0").await?;
        while read_message(&mut server).await?.0 != b'Z' {}
        shared.give_back(server);
    }
    served
}

async fn converse(
    client: &mut UnixStream,
    shared: &Shared,
    held: &mut Option<UnixStream>,
) -> io::Result<()> {
    loop {
        let (kind, body) = read_message(client).await?;
        shared.thaw().await;
        if kind == b'X' {
            return Ok(());
        }
        if held.is_none() {
            *held = Some(shared.take().await);
        }
        let server = held.as_mut().expect("it was just taken");
        write_message(server, kind, &body).await?;
        if !matches!(kind, b'Q' | b'S') {
            continue;
        }
        if shared.loses(kind, &body) {
            while read_message(server).await?.0 != b'Z' {}
            return Ok(());
        }
        loop {
            let (kind, body) = read_message(server).await?;
            shared.thaw().await;
            // What a session was told to listen for reaches nobody.
            if kind == b'A' {
                continue;
            }
            write_message(client, kind, &body).await?;
            if kind == b'Z' {
                if body == b"I"
                    && let Some(server) = held.take()
                {
                    shared.give_back(server);
                }
                break;
            }
        }
    }
}

async fn log_in(server: &mut UnixStream, database: &str) -> io::Result<()> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    body.extend(b"user\0windlass\0database\0");
    body.extend(database.as_bytes());
    body.extend(b"\0application_name\0pooler\0\0");
    server.write_all(&(body.len() as u32 + 4).to_be_bytes()).await?;
    server.write_all(&body).await?;
    while read_message(server).await?.0 != b'Z' {}
    Ok(())
}

async fn read_message(stream: &mut UnixStream) -> io::Result<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await?;
    Ok((kind, read_body(stream).await?))
}

async fn read_body(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut body = vec![0; length as usize - 4];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

async fn write_message(stream: &mut UnixStream, kind: u8, body: &[u8]) -> io::Result<()> {
    let mut message = vec![kind];
    message.extend((body.len() as u32 + 4).to_be_bytes());
    message.extend(body);
    stream.write_all(&message).await
}
