//! A duty of a program while the process that is at it is killed again and again.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::{DutyCtx, DutyOptions, Timestamp, Windlass};

use super::connect;
use crate::database::TestDatabase;

/// Says that this process does the duty, and for which database.
const URL: &str = "WINDLASS_TEST_DUTIES_URL";

const EVERY: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(2);

/// How long a handler takes: long enough to be killed at it.
const TAKES: Duration = Duration::from_millis(600);

const PROCESSES: usize = 3;
const KILLS: usize = 4;

/// How many handlers must have ended when it is over.
const ENDS: usize = 8;

/// How long all of it may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// When each handler began and ended, by the clock of the database.
const NOTES: &str = "create table public.notes (
    term bigint, process bigint, began_at timestamptz default clock_timestamp(),
    ended_at timestamptz
)";

#[tokio::test]
#[ignore = "not a test: the process that another test starts and kills"]
async fn process() {
    let Ok(url) = std::env::var(URL) else { return };
    let windlass = Windlass::connect(url.as_str()).await.unwrap();
    let client = connect(&url).await;
    let pid = i64::from(std::process::id());
    let options = DutyOptions::default().ttl(TTL).duty("beat", EVERY, move |ctx: DutyCtx| {
        let client = client.clone();
        async move {
            let term = ctx.term().0.cast_signed();
            let begin = "insert into public.notes (term, process) values ($1, $2)";
            client.execute(begin, &[&term, &pid]).await?;
            tokio::time::sleep(TAKES).await;
            let end = "update public.notes set ended_at = clock_timestamp()
                where term = $1 and process = $2";
            client.execute(end, &[&term, &pid]).await?;
            Ok::<_, tokio_postgres::Error>(())
        }
    });
    let _duties = windlass.duties(options).unwrap();
    // Nobody is left behind by a test that is killed itself.
    tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await.unwrap().unwrap();
}

/// A process that may do the duty; killed when it is dropped.
struct Program(Child);

impl Program {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killing::duties::process", "--ignored", "--nocapture"]);
        let command = command.env(URL, url).stdin(Stdio::piped());
        Program(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i64 {
        i64::from(self.0.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // By the standard library that is SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A handler's note: term, process, when it began and when it ended, in microseconds.
type Line = (i64, i64, i64, Option<i64>);

async fn lines(client: &tokio_postgres::Client) -> Vec<Line> {
    let sql = "select term, process, (extract(epoch from began_at) * 1000000)::bigint,
            (extract(epoch from ended_at) * 1000000)::bigint
        from public.notes order by began_at";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_at_a_time_is_at_a_duty_however_often_it_is_killed() {
    let database = TestDatabase::new().await;
    let url = database.url();
    let windlass = Windlass::connect(url.as_str()).await.unwrap();
    let client = connect(&url).await;
    client.batch_execute(NOTES).await.unwrap();
    let mut programs: Vec<Program> = (0..PROCESSES).map(|_| Program::start(&url)).collect();
    let mut dead: BTreeMap<i64, Timestamp> = BTreeMap::new();
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "it does not come to its end");
        let lines = lines(&client).await;
        if dead.len() >= KILLS && lines.iter().filter(|line| line.3.is_some()).count() >= ENDS {
            break;
        }
        // Whoever is at it is killed, but for every other term.
        let at_it = lines.last().filter(|line| line.3.is_none() && line.0 % 2 == 1);
        let victim = at_it.and_then(|line| programs.iter().position(|it| it.pid() == line.1));
        if let Some(place) = victim.filter(|_| dead.len() < KILLS) {
            let pid = programs[place].pid();
            drop(programs.remove(place));
            dead.insert(pid, windlass.store().now().await.unwrap());
            programs.push(Program::start(&url));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(programs);
    let lines = lines(&client).await;
    for pair in lines.windows(2) {
        let [(term, process, _, ended_at), (next, _, began_at, _)] = pair else { continue };
        assert!(next > term, "term {next} follows term {term}: {lines:#?}");
        let died_at = dead.get(process).map(|at| at.as_micros());
        let over_at = ended_at.or(died_at).expect("a handler ends or its process dies");
        assert!(*began_at >= over_at, "term {next} began beside term {term}: {lines:#?}");
    }
    let [record] = windlass.program_duties().await.unwrap().try_into().unwrap();
    assert!(record.errors >= 1, "nobody was killed at work: {record:#?}");
    let report = audit(&PostgresOptions::new(&url), &AuditOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
}
