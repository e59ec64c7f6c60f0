//! Streams of messages whose worker processes are killed wherever they are: one after the other
//! for each key, in the order in which they were sent, and none is lost.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio_postgres::Client;
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::{Ctx, DutyOptions, Limit, RetryPolicy, TaskError, Windlass, Workflow};

use super::connect;
use crate::database::TestDatabase;

/// Says that this process is a worker, and for which database.
const URL: &str = "WINDLASS_TEST_STREAMS_URL";

/// How many messages are sent, if not this many.
const MESSAGES: &str = "WINDLASS_TEST_MESSAGES";
const MESSAGES_USUAL: u64 = 3_000;

/// How many messages a key has.
const MESSAGES_PER_KEY: u64 = 100;

/// How long a dead worker keeps what it had. A living one must not lose it on a slow machine, or
/// its handlers would be at work beside their successors.
const LEASE: Duration = Duration::from_secs(4);

/// How long a message may take on average, with some time for all of them.
const PATIENCE_PER_MESSAGE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(120);

/// How many runs are started at once.
const BATCH: usize = 200;

/// How often a worker is killed, at most.
const KILLS: usize = 12;
const WORKERS: usize = 3;
const SLOTS: usize = 40;

/// One in so many fails once, and one in so many for good.
const FAILS_ONCE: u64 = 23;
const FAILS: u64 = 41;

/// Where handlers leave what they do, in the order in which they do it.
const NOTES: &str = "create table public.notes (
    id bigint generated always as identity primary key,
    key bigint, number bigint, fence bigint, is_end boolean)";
const NOTE: &str = "insert into public.notes (key, number, fence, is_end) values ($1, $2, $3, $4)";

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Message {
    key: u64,
    number: u64,
}

/// The workflow of every other key, and that of the others, whose keys have owners.
fn streams(client: &Arc<Client>) -> [Workflow<Message>; 2] {
    let one = || Limit::per("key", 1);
    [("stream", one()), ("owned", one().owned())].map(|(name, limit)| stream(name, limit, client))
}

fn stream(name: &str, limit: Limit, client: &Arc<Client>) -> Workflow<Message> {
    let mut workflow = Workflow::<Message>::builder(name);
    let client = Arc::clone(client);
    let task = workflow.task("take").limit(limit);
    let retry = RetryPolicy::fixed(Duration::from_millis(20)).attempts(50);
    task.retry(retry).run(move |ctx| take(ctx, Arc::clone(&client)));
    workflow.build().unwrap()
}

async fn take(ctx: Ctx<Message>, client: Arc<Client>) -> Result<(), TaskError> {
    let Message { key, number } = *ctx.input();
    let fence = ctx.fence().0.cast_signed();
    let note = async |is_end: bool| {
        let (key, number) = (key.cast_signed(), number.cast_signed());
        client.execute(NOTE, &[&key, &number, &fence, &is_end]).await.map_err(TaskError::new)
    };
    note(false).await?;
    tokio::task::yield_now().await;
    note(true).await?;
    if number % FAILS == 5 {
        return Err(TaskError::new("it cannot be taken").permanent());
    }
    if number % FAILS_ONCE == 3 && ctx.attempt() == 1 {
        return Err(TaskError::new("not yet"));
    }
    Ok(())
}

#[tokio::test]
#[ignore = "not a test: the worker that another test starts and kills"]
async fn worker() {
    let Ok(url) = std::env::var(URL) else { return };
    // Nobody is left behind by a test that is killed itself.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let windlass = Windlass::connect(url.as_str()).await.unwrap();
    let [stream, owned] = streams(&connect(&url).await);
    let worker =
        windlass.worker().register(&stream).register(&owned).slots(SLOTS).lease(LEASE).duties(None);
    worker.spawn().unwrap().ended().await.unwrap();
}

/// A worker process; killed when it is dropped.
struct Worker(Child);

impl Worker {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killing::streams::worker", "--ignored", "--nocapture"]);
        let command = command.env(URL, url).stdin(Stdio::piped());
        Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // By the standard library that is SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends the messages of all keys, those of a key in the order of their numbers.
async fn send(windlass: &Windlass, streams: &[Workflow<Message>; 2], messages: u64) {
    let keys = (messages / MESSAGES_PER_KEY).max(1);
    let all: Vec<Message> =
        (0..messages).map(|n| Message { key: n % keys, number: n / keys }).collect();
    for batch in all.chunks(BATCH) {
        let stream = |message: &Message| &streams[usize::from(message.key % 2 == 1)];
        let starts = batch.iter().map(|message| windlass.start(stream(message), *message));
        for started in windlass.start_all(starts).await.unwrap() {
            started.unwrap();
        }
    }
}

/// Kills and replaces workers while there is something to do.
async fn kill_until_ended(url: &str, client: &Client, messages: u64) -> usize {
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start(url)).collect();
    let patience = PATIENCE + PATIENCE_PER_MESSAGE * u32::try_from(messages).unwrap();
    let (began, mut kills) = (Instant::now(), 0);
    loop {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(100..900))).await;
        let sql = "select (select count(*) from windlass.runs where ended_at is null),
            (select count(*) from windlass.leases)";
        let row = client.query_one(sql, &[]).await.unwrap();
        let (open, leases): (i64, i64) = (row.get(0), row.get(1));
        if open == 0 {
            return kills;
        }
        assert!(began.elapsed() < patience, "{open} messages are left");
        if kills < KILLS && leases > 0 {
            workers[fastrand::usize(..WORKERS)] = Worker::start(url);
            kills += 1;
        }
    }
}

/// What one key's handlers noted: number, fence, and whether it is an end.
type Notes = BTreeMap<i64, Vec<(i64, i64, bool)>>;

/// Counts the messages of a key that were taken out of order, and those that were at work while
/// another was.
fn disorder(notes: &[(i64, i64, bool)]) -> (usize, usize) {
    let (mut unordered, mut overlaps) = (0, 0);
    let (mut newest, mut open): (i64, Option<(i64, i64)>) = (-1, None);
    for (number, fence, is_end) in notes.iter().copied() {
        match (is_end, open) {
            (false, Some((other, _))) if other != number => {
                // Who was killed in the middle comes again before the next.
                overlaps += 1;
            }
            (true, Some(at_work)) if at_work != (number, fence) => overlaps += 1,
            (false, _) | (true, _) => {}
        }
        open = (!is_end).then_some((number, fence));
        unordered += usize::from(number < newest);
        newest = newest.max(number);
    }
    (unordered, overlaps)
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "long"]
    async fn messages_of_a_key_are_taken_in_order_wherever_processes_are_killed() {
        let messages = std::env::var(MESSAGES).ok().map(|text| text.parse().unwrap());
        let messages = messages.unwrap_or(MESSAGES_USUAL);
        let seed = fastrand::u64(..);
        println!("seed {seed}, {messages} messages");
        fastrand::seed(seed);
        let database = TestDatabase::new().await;
        let url = database.url();
        let windlass = Windlass::connect(url.as_str()).await.unwrap();
        let client = connect(&url).await;
        client.batch_execute(NOTES).await.unwrap();
        // They are not killed: how leaders are replaced is tested elsewhere, and takes its time.
        let duties = windlass.duties(DutyOptions::default()).unwrap();
        let streams = streams(&client);
        let began = Instant::now();
        let sent = send(&windlass, &streams, messages);
        let (_, kills) = tokio::join!(sent, async {
            while client.query("select from windlass.runs limit 1", &[]).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            kill_until_ended(&url, &client, messages).await
        });
        let time = began.elapsed();

        let mut notes = Notes::new();
        let sql = "select key, number, fence, is_end from public.notes order by id";
        for row in client.query(sql, &[]).await.unwrap() {
            let note = (row.get(1), row.get(2), row.get(3));
            notes.entry(row.get(0)).or_default().push(note);
        }
        let (mut unordered, mut overlaps, mut taken) = (0, 0, 0);
        for notes in notes.values() {
            let (wrong, beside) = disorder(notes);
            unordered += wrong;
            overlaps += beside;
            let numbers: std::collections::BTreeSet<i64> =
                notes.iter().map(|note| note.0).collect();
            taken += numbers.len() as u64;
        }
        let lost: i64 = client
            .query_one("select count(*) from windlass.events where kind = 'lease_expired'", &[])
            .await
            .unwrap()
            .get(0);
        println!(
            "{messages} messages over {} keys in {:.1} s: {kills} kills, {lost} attempts lost, \
             {unordered} out of order, {overlaps} overlaps, {} messages lost",
            notes.len(),
            time.as_secs_f64(),
            messages - taken
        );
        assert_eq!((unordered, overlaps, messages - taken), (0, 0, 0));
        assert!(kills > 0 && lost > 0, "{kills} kills, {lost} lost");
        drop(duties);
        let report = audit(&PostgresOptions::new(&url), &AuditOptions::default()).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
