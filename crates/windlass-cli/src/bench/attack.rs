//! The hostile clients of `windlass bench hostile`: this program again, as `windlass bench-attack`.
//!
//! They are a process of their own at the lowest priority. What they compute themselves takes
//! processor time only where the server, PostgreSQL and the normal tenant leave some.

use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpSocket;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use super::crew::say;
use super::meter::cpu_of;

/// Where the process finds its tokens: those of viewers and one of a worker, separated by spaces.
const TOKENS: &str = "WINDLASS_BENCH_ATTACK_TOKENS";

/// The line that the process prints when the attack has begun.
const READY: &str = "ready";

/// The address that the attack comes from. The normal tenant comes from 127.0.0.1: a server gives
/// each address its share.
const ORIGIN: &str = "127.0.0.2:0";

/// The pause of a client after a refusal, which costs the server next to nothing.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of list requests in progress at a time.
const LISTS: usize = 32;

/// The number of unfinished calls on one connection, and the size of each.
const CALLS: usize = 40;
const CALL_BYTES: usize = 50 << 20;

/// The bytes of a request that is all empty elements.
const ELEMENTS_BYTES: usize = 8 << 20;

/// The number of workers with held claims, and of clients that join one worker after the other.
const CLAIMS: usize = 300;
const JOINERS: usize = 4;

/// The time in which `burn` computes and sleeps once.
const BURN_PERIOD: Duration = Duration::from_millis(5);

/// The number of connections with unread answers, and how long each answer is left unread.
const ANSWER_CONNECTIONS: usize = 20;
const UNREAD_TIME: Duration = Duration::from_secs(10);

/// What a stream takes before any of it is read, in bytes.
const WINDOW_BYTES: u32 = 1 << 20;
const UNREAD_WINDOW_BYTES: u32 = 1 << 10;

/// The calls that a connection has at a time, with room to spare.
const CALLS_PER_CONNECTION: usize = 100;

/// The pieces of bodies.
const PIECE: usize = 64 << 10;
static ZEROS: [u8; PIECE] = [0; PIECE];

/// What hostile clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attack {
    /// Nothing that reaches the server: computes on every core. The control.
    Burn,
    /// Unfinished gRPC calls of 50 MiB on one connection.
    Bodies,
    /// Requests of millions of empty elements.
    Elements,
    /// Pages of one run and of 1,000 runs.
    Lists,
    /// Pages of runs by workflow, state and metadata that no run has.
    Filters,
    /// Runs with large inputs, of which nothing is read.
    Answers,
    /// Workers that hold claims on queues, empty and not.
    Claims,
    /// Workers that join and are never heard of again.
    Joins,
}

impl Attack {
    /// Its name in figures.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Attack::Burn => "burn",
            Attack::Bodies => "bodies",
            Attack::Elements => "elements",
            Attack::Lists => "lists",
            Attack::Filters => "filters",
            Attack::Answers => "answers",
            Attack::Claims => "claims",
            Attack::Joins => "joins",
        }
    }

    /// What it does, for people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Attack::Burn => "control: computing clients",
            Attack::Bodies => "unfinished bodies",
            Attack::Elements => "empty elements",
            Attack::Lists => "lists",
            Attack::Filters => "filtered lists",
            Attack::Answers => "unread answers",
            Attack::Claims => "held claims",
            Attack::Joins => "joins",
        }
    }
}

/// Arguments of `windlass bench-attack`.
#[derive(Clone, clap::Args)]
pub(crate) struct Arguments {
    /// The address of the server.
    #[arg(long)]
    url: String,

    /// What to do.
    #[arg(long)]
    attack: Attack,

    /// The processor time that `burn` takes of each core, in percent.
    #[arg(long, default_value_t = 100, value_parser = crate::text::whole_number::<u32>(0..=100))]
    percent: u32,

    #[arg(long, env = TOKENS, hide_env_values = true)]
    tokens: String,
}

impl std::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arguments").field("attack", &self.attack).finish_non_exhaustive()
    }
}

/// Attacks until its standard input is closed, then prints the number of requests that were
/// answered and of those that were refused.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    rustix::process::nice(19).context("the priority cannot be lowered")?;
    let host = arguments.url.strip_prefix("http://").context("the address begins with http://")?;
    let tokens: Vec<String> = arguments.tokens.split_whitespace().map(str::to_owned).collect();
    let Some((worker, viewers)) = tokens.split_last() else { bail!("{TOKENS} has no token") };
    let address: SocketAddr = host.parse().context("the server listens at an address")?;
    let target = Target { address, count: Arc::new(Count::default()) };
    let mut attackers = JoinSet::new();
    match arguments.attack {
        Attack::Burn => {
            for _ in 0..std::thread::available_parallelism()?.get() {
                std::thread::spawn(move || burn(arguments.percent));
            }
            target.count.answered.fetch_add(1, Ordering::Relaxed);
        }
        Attack::Bodies => {
            let viewer = target.client(&viewers[0]).await?;
            let worker = target.client(worker).await?;
            for number in 0..2 * CALLS {
                let (client, path) = match number % 2 {
                    0 => (&viewer, "GetTime"),
                    _ => (&worker, "StartRuns"),
                };
                let request = client.grpc(path, CALL_BYTES, Content::unfinished(CALL_BYTES));
                attackers.spawn(client.clone().repeat(request));
            }
        }
        Attack::Elements => {
            let client = target.client(worker).await?;
            let elements = Bytes::from([0x0a, 0x00].repeat(ELEMENTS_BYTES / 2));
            let runs = format!(r#"{{"runs":[{{}}{}]}}"#, ",{}".repeat(ELEMENTS_BYTES / 3 - 8));
            let runs = Bytes::from(runs);
            for _ in 0..2 {
                let body = Content::of(elements.clone());
                attackers.spawn(client.clone().repeat(client.grpc(
                    "StartRuns",
                    elements.len(),
                    body,
                )));
                let body = Content::of(runs.clone());
                attackers.spawn(client.clone().repeat(client.json("/v1/run-batches", body)));
            }
        }
        Attack::Lists | Attack::Filters => {
            let clients = target.clients(viewers).await?;
            for number in 0..LISTS {
                let client = &clients[number % clients.len()];
                let request = match (arguments.attack, number / clients.len() % 4) {
                    (Attack::Filters, 0) => client.get("/v1/runs?workflow=no-such-workflow"),
                    (Attack::Filters, 1) => client.get("/v1/runs?state=failed"),
                    (Attack::Filters, _) => {
                        client.get("/v1/runs?metadata_key=some&metadata_value=thing")
                    }
                    (_, 0 | 1) => client.get("/v1/runs?limit=1"),
                    // Field 6, a number: the limit.
                    (_, _) => {
                        client.grpc("ListRuns", 3, Content::of(Bytes::from_static(b"\x30\xe8\x07")))
                    }
                };
                attackers.spawn(client.clone().repeat(request));
            }
        }
        Attack::Answers => {
            let reader = target.client(&viewers[0]).await?;
            let page = reader.send(reader.get("/v1/runs?workflow=bench-large&limit=1")).await?;
            let page: Value = serde_json::from_slice(&page.body)?;
            let run = page["runs"][0]["id"].as_str().context("there is no large run")?.to_owned();
            for number in 0..ANSWER_CONNECTIONS {
                let token = &viewers[number % viewers.len()];
                let client = target.client_that_reads(token, UNREAD_WINDOW_BYTES).await?;
                for _ in 0..CALLS_PER_CONNECTION {
                    let request = client.get(&format!("/v1/runs/{run}"));
                    attackers.spawn(client.clone().ask_and_wait(request));
                }
            }
        }
        Attack::Claims => {
            let clients =
                target.clients(&vec![worker.clone(); CLAIMS / CALLS_PER_CONNECTION]).await?;
            for number in 0..CLAIMS {
                let client = clients[number % clients.len()].clone();
                let queue = if number % 2 == 0 { "empty" } else { "default" };
                let joined = client.send(client.join(queue, 30_000)).await?;
                let joined = String::from_utf8_lossy(&joined.body).into_owned();
                let id = serde_json::from_str::<Value>(&joined).ok();
                let id = id.and_then(|body| body["id"].as_str().map(str::to_owned));
                let id = id.with_context(|| format!("a worker cannot join: {joined}"))?;
                // A claim that is held is not answered within a phase.
                target.count.answered.fetch_add(1, Ordering::Relaxed);
                attackers.spawn(client.claim(id, queue));
            }
        }
        Attack::Joins => {
            let client = target.client(worker).await?;
            for _ in 0..JOINERS {
                attackers.spawn(client.clone().repeat(client.join("empty", 1_000)));
            }
        }
    }
    say(READY)?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        tokio::select! {
            line = lines.next_line() => if line?.is_none() { break },
            Some(ended) = attackers.join_next() => ended??,
        }
    }
    let count = &target.count;
    say(&format!(
        "{} {}",
        count.answered.load(Ordering::Relaxed),
        count.refused.load(Ordering::Relaxed)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Computes for a share of each period, for ever.
fn burn(percent: u32) {
    loop {
        let began = Instant::now();
        while began.elapsed() < BURN_PERIOD * percent / 100 {
            std::hint::spin_loop();
        }
        std::thread::sleep(BURN_PERIOD.saturating_sub(began.elapsed()));
    }
}

/// Registers the workflow that hostile workers join with: a token of one tenant may not.
pub(crate) async fn register(url: &str, token: &str) -> anyhow::Result<()> {
    let host = url.strip_prefix("http://").context("the address begins with http://")?;
    let target = Target { address: host.parse()?, count: Arc::new(Count::default()) };
    let client = target.client(token).await?;
    let answer = client.send(client.join("empty", 1_000)).await?;
    let body = String::from_utf8_lossy(&answer.body);
    anyhow::ensure!(!answer.is_refused, "the workflow of hostile workers is refused: {body}");
    Ok(())
}

/// How many requests were answered as asked, and how many were refused.
#[derive(Debug, Default)]
struct Count {
    answered: AtomicU64,
    refused: AtomicU64,
}

/// The server.
#[derive(Clone)]
struct Target {
    address: SocketAddr,
    count: Arc<Count>,
}

impl Target {
    /// A connection with a token.
    async fn client(&self, token: &str) -> anyhow::Result<Client> {
        self.client_that_reads(token, WINDOW_BYTES).await
    }

    /// A connection with a token, whose streams take this many bytes before any are read.
    async fn client_that_reads(&self, token: &str, window: u32) -> anyhow::Result<Client> {
        let socket = TcpSocket::new_v4()?;
        let origin: SocketAddr = ORIGIN.parse()?;
        socket.bind(origin).with_context(|| {
            format!("hostile clients cannot come from {ORIGIN}: add it to the loopback interface")
        })?;
        let stream = socket.connect(self.address).await?;
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2.initial_stream_window_size(window);
        let (sender, connection) = http2.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Client { sender, target: self.clone(), token: token.to_owned() })
    }

    async fn clients(&self, tokens: &[String]) -> anyhow::Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(tokens.len());
        for token in tokens {
            clients.push(self.client(token).await?);
        }
        Ok(clients)
    }
}

/// A connection with a token.
#[derive(Clone)]
struct Client {
    sender: http2::SendRequest<Content>,
    target: Target,
    token: String,
}

/// An answer that was read to its end.
struct Answer {
    is_refused: bool,
    body: Vec<u8>,
}

impl Client {
    fn request(&self, method: &str, path: &str, kind: &str, body: Content) -> Request<Content> {
        Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.target.address))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", kind)
            .header("te", "trailers")
            .body(body)
            .expect("its parts are valid")
    }

    fn get(&self, path: &str) -> Request<Content> {
        self.request("GET", path, "application/json", Content::of(Bytes::new()))
    }

    fn json(&self, path: &str, body: Content) -> Request<Content> {
        self.request("POST", path, "application/json", body)
    }

    /// A call with one message of this many bytes.
    fn grpc(&self, call: &str, bytes: usize, mut body: Content) -> Request<Content> {
        let length = u32::try_from(bytes).expect("a message is short").to_be_bytes();
        body.head = Some(Bytes::from([&[0], &length[..]].concat()));
        let path = format!("/windlass.v1.ClientService/{call}");
        self.request("POST", &path, "application/grpc", body)
    }

    fn join(&self, queue: &str, lease_ms: u64) -> Request<Content> {
        let body = json!({ "name": "hostile", "slots": 1, "lease_ms": lease_ms, "queues": [queue],
            "workflows": [{ "name": "hostile", "tasks": [{ "name": "task" }] }] });
        self.json("/v1/workers", Content::of(Bytes::from(body.to_string())))
    }

    /// Sends a request and reads the answer to its end.
    async fn send(&self, request: Request<Content>) -> anyhow::Result<Answer> {
        let mut sender = self.sender.clone();
        sender.ready().await.context("the server closed the connection")?;
        let answer = sender.send_request(request).await?;
        let is_ok = |status: &hyper::http::HeaderValue| status == "0";
        let is_refused = !answer.status().is_success()
            || answer.headers().get("grpc-status").is_some_and(|status| !is_ok(status));
        let (mut rest, mut body) = (answer.into_body(), Vec::new());
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await
        {
            // A page may be large; only short answers are looked at.
            if let Ok(data) = frame?.into_data()
                && body.len() < PIECE
            {
                body.extend_from_slice(&data);
            }
        }
        Ok(Answer { is_refused, body })
    }

    /// Sends the same request again and again.
    async fn repeat(mut self, request: Request<Content>) -> anyhow::Result<()> {
        loop {
            self.attack(request.clone()).await?;
        }
    }

    /// Sends the same request again and again, and reads nothing of the answers.
    async fn ask_and_wait(mut self, request: Request<Content>) -> anyhow::Result<()> {
        loop {
            let mut sender = self.sender.clone();
            let answer = match sender.ready().await {
                Ok(()) => sender.send_request(request.clone()).await,
                Err(error) => Err(error),
            };
            let count = &self.target.count;
            match answer {
                Ok(answer) if answer.status().is_success() => {
                    count.answered.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(UNREAD_TIME).await;
                    drop(answer);
                }
                Ok(_) | Err(_) => {
                    count.refused.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(PAUSE).await;
                }
            }
            if self.sender.is_closed() {
                let token = self.token.clone();
                self = self.target.client_that_reads(&token, UNREAD_WINDOW_BYTES).await?;
            }
        }
    }

    /// Claims for a worker again and again.
    async fn claim(mut self, worker: String, queue: &'static str) -> anyhow::Result<()> {
        for number in 1_u64.. {
            let body = json!({ "number": number, "queues": [queue], "limit": 1, "wait_ms": 30_000,
                "workflows": [{ "name": "hostile" }] });
            let path = format!("/v1/workers/{worker}/claim");
            self.attack(self.json(&path, Content::of(Bytes::from(body.to_string())))).await?;
        }
        Ok(())
    }

    /// Sends a request, counts it, and pauses after a refusal. A connection that the server has
    /// closed is replaced.
    async fn attack(&mut self, request: Request<Content>) -> anyhow::Result<()> {
        let is_answered = match self.send(request).await {
            Ok(answer) => !answer.is_refused,
            // A request that is refused before its body has come ends with a reset of its stream.
            Err(_) => false,
        };
        let count = &self.target.count;
        match is_answered {
            true => count.answered.fetch_add(1, Ordering::Relaxed),
            false => count.refused.fetch_add(1, Ordering::Relaxed),
        };
        if !is_answered {
            tokio::time::sleep(PAUSE).await;
        }
        if self.sender.is_closed() {
            *self = self.target.client(&self.token).await?;
        }
        Ok(())
    }
}

/// A body: bytes, then zeros, then its end or silence.
#[derive(Clone)]
struct Content {
    head: Option<Bytes>,
    bytes: Option<Bytes>,
    zeros: usize,
    is_finished: bool,
}

impl Content {
    fn of(bytes: Bytes) -> Self {
        Content { head: None, bytes: Some(bytes), zeros: 0, is_finished: true }
    }

    /// All bytes of a message but its last.
    fn unfinished(bytes: usize) -> Self {
        Content { head: None, bytes: None, zeros: bytes - 1, is_finished: false }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        if let Some(bytes) = &mut self.bytes
            && !bytes.is_empty()
        {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if self.zeros > 0 {
            let piece = self.zeros.min(PIECE);
            self.zeros -= piece;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&ZEROS[..piece])))));
        }
        match self.is_finished {
            true => Poll::Ready(None),
            // The rest never comes: the server has to end it.
            false => Poll::Pending,
        }
    }
}

/// The process of hostile clients, from outside.
pub(crate) struct Attacker {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Attacker {
    /// Starts it. The last token is a worker's, the others are viewers'.
    pub(crate) async fn start(url: &str, attack: Attack, tokens: &str) -> anyhow::Result<Attacker> {
        Attacker::spawn(url, attack, 100, tokens).await
    }

    /// Starts one that computes for a share of each core and sends nothing.
    pub(crate) async fn burn(url: &str, percent: u32, tokens: &str) -> anyhow::Result<Attacker> {
        Attacker::spawn(url, Attack::Burn, percent, tokens).await
    }

    async fn spawn(
        url: &str,
        attack: Attack,
        percent: u32,
        tokens: &str,
    ) -> anyhow::Result<Attacker> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.args(["bench-attack", "--url", url, "--attack", attack.word()]);
        command.args(["--percent", &percent.to_string()]);
        command.env(TOKENS, tokens).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("hostile clients cannot be started")?;
        let stdin = child.stdin.take().context("its input is a pipe")?;
        let out = child.stdout.take().context("its output is a pipe")?;
        let mut lines = BufReader::new(out).lines();
        let line = lines.next_line().await?;
        anyhow::ensure!(line.as_deref() == Some(READY), "the hostile clients ended: {line:?}");
        Ok(Attacker { child, stdin, lines })
    }

    /// The processor time that it has taken so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let cpu = self.child.id().and_then(cpu_of);
        cpu.context("the processor time of the hostile clients cannot be read")
    }

    /// Ends it. Returns how many of its requests were answered and refused.
    pub(crate) async fn end(self) -> anyhow::Result<(u64, u64)> {
        let Attacker { mut child, stdin, mut lines } = self;
        drop(stdin);
        let line = lines.next_line().await?.context("the hostile clients failed")?;
        let (answered, refused) = line.split_once(' ').context("two numbers")?;
        child.start_kill()?;
        child.wait().await?;
        Ok((answered.parse()?, refused.parse()?))
    }
}
