//! Hooks that are told by real requests and real programs.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::hmac;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use windlass::hooks::{Hook, Trouble};
use windlass::store::{DeadLetter, DeadLetterFilter, RunFilter, RunRecord};
use windlass::{Ctx, RetryPolicy, RunHandle, RunState, TaskError, Windlass, Workflow};

#[cfg(all(feature = "embedded", feature = "postgres"))]
use crate::database::TestDatabase;

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what} does not come"));
}

#[derive(Clone, Debug)]
struct Received {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Received {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A server that notes what it gets and answers as it is told.
struct Receiver {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Answers the first request with the first of these, and all behind them with the last.
    async fn answering(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?token=1", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let noted = Arc::clone(&received);
        let answers: Vec<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let Some(request) = read(&mut stream).await else { continue };
                let place = {
                    let mut noted = noted.lock().unwrap();
                    noted.push(request);
                    noted.len() - 1
                };
                let answer = &answers[place.min(answers.len() - 1)];
                let text = format!("HTTP/1.1 {answer}\r\nContent-Length: 4\r\n\r\nwell");
                // Whoever asked may be gone.
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        Receiver { url, received, task }
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    fn hook(&self) -> Hook {
        Hook::webhook("ops", &self.url).allow_internal()
    }

    async fn until_received(&self, count: usize) {
        until("a request", async || self.received().len() >= count).await;
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut lines = head.lines();
        let line = lines.next()?.to_owned();
        let header = |line: &str| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.into()));
        let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
        if body.len() >= headers.get("content-length")?.parse().ok()? {
            return Some(Received { line, headers, body: body.to_owned() });
        }
    }
}

fn order() -> Workflow<()> {
    let mut order = Workflow::<()>::builder("order");
    order
        .task("charge")
        .retry(RetryPolicy::none())
        .run(async |_: Ctx<()>| Err::<(), _>(TaskError::new("card declined").code("declined")));
    order.build().unwrap()
}

async fn failed(windlass: &Windlass, order: &Workflow<()>) -> RunHandle {
    let run = windlass.start(order, ()).tenant("acme").await.unwrap();
    assert_eq!(run.wait().await.unwrap().state, RunState::Failed);
    run
}

async fn notifications(windlass: &Windlass) -> Vec<RunRecord> {
    let runs = windlass.list(RunFilter::default()).await.unwrap().runs;
    runs.into_iter().filter(|run| run.workflow.as_str().starts_with("windlass.hook/")).collect()
}

/// Waits until hooks were looked after some more times.
async fn until_looked(windlass: &Windlass, times: u64) {
    let looks = async || {
        let duties = windlass.program_duties().await.unwrap();
        let [duty] = duties.try_into().unwrap();
        assert_eq!((duty.errors, duty.last_error), (0, None));
        duty.runs
    };
    let begin = looks().await;
    until("a look", async || looks().await >= begin + times).await;
}

/// Waits until the notification that there is has failed, and answers its dead letter.
async fn undelivered(windlass: &Windlass) -> DeadLetter {
    let is_failed = |run: &RunRecord| run.state == RunState::Failed;
    until("a failure", async || notifications(windlass).await.iter().any(is_failed)).await;
    let [run] = notifications(windlass).await.try_into().unwrap();
    let filter = DeadLetterFilter::of_run(run.id);
    let letters = windlass.store().list_dead_letters(filter, None, 10).await.unwrap().letters;
    let [letter] = letters.try_into().unwrap();
    letter
}

/// One that is told by two processes at a time, and by others behind them.
async fn assert_told_once(engines: [Windlass; 3]) {
    let receiver = Receiver::answering(&["200 OK"]).await;
    let hook = || receiver.hook().secret("s3cret").on(Trouble::RunFailed);
    let order = order();
    let worker = |windlass: &Windlass, name: &str| {
        let worker = windlass.worker().register(&order).name(name).queues(["default"]);
        worker.quick_hooks("shop", [hook()]).spawn().unwrap()
    };
    let [one, two, three] = engines;
    let first = worker(&one, "one");
    let second = worker(&two, "two");
    let run = failed(&one, &order).await;
    receiver.until_received(1).await;
    until_looked(&one, 2).await;
    first.drain().await.unwrap();
    until_looked(&two, 2).await;
    second.drain().await.unwrap();
    let third = worker(&three, "three");
    until_looked(&three, 2).await;
    third.drain().await.unwrap();

    let [notification] = notifications(&one).await.try_into().unwrap();
    assert_eq!(notification.state, RunState::Succeeded);
    let [request] = receiver.received().try_into().unwrap();
    assert_eq!(request.line, "POST /hook?token=1 HTTP/1.1");
    let header = |name: &str| request.headers[name].as_str();
    assert_eq!(header("content-type"), "application/json");
    let told = request.json();
    assert_eq!(told["id"], header("windlass-id"));
    assert_eq!(told["id"], notification.id.to_string());
    assert_eq!((&told["hook"], &told["trouble"]), (&"ops".into(), &"run_failed".into()));
    assert_eq!(told["run"], run.id().to_string());
    assert_eq!((&told["workflow"], &told["tenant"]), (&"order".into(), &"acme".into()));
    let task = &told["tasks"][0];
    assert_eq!((&task["task"], &task["error"]), (&"charge".into(), &"card declined".into()));
    let signed = [header("windlass-id"), header("windlass-timestamp"), &request.body].join(".");
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"s3cret");
    let tag = hmac::sign(&key, signed.as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(header("windlass-signature"), format!("v1={hex}"));
}

#[tokio::test]
async fn a_failed_run_is_told_once_by_all_processes_together() {
    let windlass = Windlass::memory();
    assert_told_once([windlass.clone(), windlass.clone(), windlass]).await;
}

#[cfg(all(feature = "embedded", feature = "postgres"))]
#[tokio::test]
async fn a_failed_run_is_told_once_by_all_processes_of_a_database() {
    let database = TestDatabase::new().await;
    let connect = async || Windlass::connect(database.url().as_str()).await.unwrap();
    assert_told_once([connect().await, connect().await, connect().await]).await;
}

#[tokio::test]
async fn what_the_receiver_could_not_take_is_sent_again_under_the_same_id() {
    let receiver = Receiver::answering(&["500 Oops", "429 Slow Down", "204 Fine"]).await;
    let (windlass, order) = (Windlass::memory(), order());
    let hook = receiver.hook().on(Trouble::DeadLetter);
    let worker = windlass.worker().register(&order).quick_hooks("shop", [hook]).spawn().unwrap();
    failed(&windlass, &order).await;
    receiver.until_received(3).await;
    let is_done = |run: &RunRecord| run.state == RunState::Succeeded;
    until("an end", async || notifications(&windlass).await.iter().all(is_done)).await;
    let received = receiver.received();
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|it| it.body == received[0].body));
    assert!(received.iter().all(|it| it.headers["windlass-id"] == received[0].json()["id"]));
    assert!(!received[0].headers.contains_key("windlass-signature"), "there is no secret");
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_hooks_are_not_told_of_what_they_were_not_told() {
    let inner = Receiver::answering(&["200 OK"]).await;
    let answer = format!("302 Found\r\nLocation: {}", inner.url);
    let receiver = Receiver::answering(&[&answer]).await;
    let (windlass, order) = (Windlass::memory(), order());
    let hook = receiver.hook().on(Trouble::RunFailed);
    let worker = windlass.worker().register(&order).quick_hooks("shop", [hook]).spawn().unwrap();
    failed(&windlass, &order).await;
    let letter = undelivered(&windlass).await;
    assert_eq!(letter.attempts, 3);
    let message = &letter.failure.message;
    assert!(message.contains("got 302") && message.contains("not followed"), "{message}");
    assert!(!message.contains("token"), "the path of a URL is a secret: {message}");
    until_looked(&windlass, 2).await;
    assert_eq!(notifications(&windlass).await.len(), 1);
    assert_eq!((receiver.received().len(), inner.received().len()), (3, 0));
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn an_internal_address_is_refused_for_good() {
    let receiver = Receiver::answering(&["200 OK"]).await;
    let (windlass, order) = (Windlass::memory(), order());
    let hook = Hook::webhook("ops", &receiver.url).on(Trouble::RunFailed);
    let worker = windlass.worker().register(&order).quick_hooks("shop", [hook]).spawn().unwrap();
    failed(&windlass, &order).await;
    let letter = undelivered(&windlass).await;
    assert_eq!((letter.attempts, letter.failure.is_retryable), (1, false));
    let wanted = "hook \"ops\" may not go to \"127.0.0.1\": its address 127.0.0.1 is loopback";
    assert_eq!(letter.failure.message, wanted);
    assert_eq!(receiver.received().len(), 0);
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    // Connections wait in the listener's queue, and nobody accepts them.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (windlass, order) = (Windlass::memory(), order());
    let hook = Hook::webhook("ops", url).allow_internal().timeout(Duration::from_millis(50));
    let hook = hook.on(Trouble::RunFailed);
    let worker = windlass.worker().register(&order).quick_hooks("shop", [hook]).spawn().unwrap();
    failed(&windlass, &order).await;
    let letter = undelivered(&windlass).await;
    assert_eq!(letter.attempts, 3);
    let message = letter.failure.message;
    assert_eq!(message, "hook \"ops\" was not delivered within 50ms");
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn a_command_gets_what_there_is_to_tell() {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = format!("windlass-hook-{}-{number}.json", std::process::id());
    let file = std::env::temp_dir().join(file);
    let script = r#"cat > "$1.new" && mv "$1.new" "$1""#;
    let args = ["-c", script, "sh", file.to_str().unwrap()];
    let hook = Hook::command("pager", "sh", args).on(Trouble::DeadLetter);
    let (windlass, order) = (Windlass::memory(), order());
    let worker = windlass.worker().register(&order).quick_hooks("shop", [hook]).spawn().unwrap();
    let run = failed(&windlass, &order).await;
    until("a file", async || file.exists()).await;
    let told: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!((&told["hook"], &told["trouble"]), (&"pager".into(), &"dead_letter".into()));
    assert_eq!(told["run"], run.id().to_string());
    assert_eq!((&told["task"], &told["code"]), (&"charge".into(), &"declined".into()));
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn a_worker_with_a_hook_that_cannot_be_used_does_not_start() {
    let windlass = Windlass::memory();
    let hook = Hook::webhook("ops", "ftp://example.com/").on(Trouble::RunFailed);
    let error = windlass.worker().hooks("shop", [hook]).spawn().map(drop).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("hook \"ops\" has a URL with \"ftp\", not http or https"), "{text}");
}
