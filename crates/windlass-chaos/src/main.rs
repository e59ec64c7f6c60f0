//! Runs real Windlass workers on a real PostgreSQL while workers are killed and frozen, the
//! database crashes and connections are cut around commits, and checks the outcome against a
//! ledger that Windlass does not write.
//!
//! `cargo xtask chaos` runs it. Processes, disks and schedulers take part, so a run cannot be
//! repeated from a seed; `windlass-sim` is for that. On a violation the directory with the
//! database, the ledger and the logs of the workers stays for inspection.

mod checks;
mod client;
mod crew;
mod database;
mod ledger;
mod proxy;
mod workload;

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use futures_util::future::try_join_all;
use tokio::sync::Mutex;
use windlass::schedule::Missed;
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::{Cadence, Schedule, Windlass};

use checks::{BEAT_US, Evidence};
use client::{Answers, repair_halted, send};
use crew::{Crew, ledger_file};
use database::Database;
use ledger::Ledger;
use proxy::{Cuts, Proxy};
use workload::{Item, Repairs, Workflows, Workload};

/// The time that runs may take to end after the last fault: lease, reap interval and backoff as
/// guaranteed, and the time to execute what is queued.
const SETTLE_MAX: Duration = Duration::from_secs(120);

/// The pause between two looks at open runs.
const LOOK: Duration = Duration::from_millis(200);

/// The most violations that are printed.
const VIOLATIONS_MAX: usize = 20;

/// Kill, freeze, crash and disconnect Windlass, and check its guarantees
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the test
    Run(Goals),
    /// Work until killed (started by the test)
    #[command(hide = true)]
    Worker {
        /// Database
        #[arg(long)]
        url: String,
        /// Directory of the test
        #[arg(long)]
        directory: PathBuf,
    },
}

/// What a test must reach.
#[derive(Args, Clone, Copy, Debug)]
struct Goals {
    /// Minimum number of tasks
    #[arg(long, default_value_t = 50_000)]
    tasks: u64,
    /// Worker processes to kill
    #[arg(long, default_value_t = 50)]
    kills: u32,
    /// Worker processes to freeze past their lease
    #[arg(long, default_value_t = 20)]
    freezes: u32,
    /// Database crashes
    #[arg(long, default_value_t = 10)]
    crashes: u32,
    /// Connections to cut around a commit
    #[arg(long, default_value_t = 500)]
    cuts: u32,
    /// Seconds over which starts and faults are spread
    #[arg(long, default_value_t = 150)]
    seconds: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = runtime.context("cannot start the runtime").and_then(|runtime| {
        runtime.block_on(async {
            match cli.command {
                Command::Run(goals) => run(goals).await,
                Command::Worker { url, directory } => crew::work(&url, &directory).await,
            }
        })
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windlass-chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the test in a new directory, which stays if the test fails.
async fn run(goals: Goals) -> anyhow::Result<()> {
    let directory = std::env::temp_dir().join(format!("windlass-chaos-{}", std::process::id()));
    // The account of PostgreSQL passes through it.
    std::fs::DirBuilder::new().mode(0o711).create(&directory)?;
    println!("working in {}", directory.display());
    let mut database = Database::start(&directory).await?;
    let outcome = test(goals, &directory, &mut database).await;
    database.stop().await?;
    match &outcome {
        Ok(()) => std::fs::remove_dir_all(&directory)?,
        Err(_) => println!("kept {} for inspection", directory.display()),
    }
    outcome
}

async fn test(goals: Goals, directory: &Path, database: &mut Database) -> anyhow::Result<()> {
    let began = Instant::now();
    let proxy = Proxy::start(directory, database.socket())?;
    let url = proxy.url(&database.url())?;
    let windlass = Windlass::connect(PostgresOptions::new(&url).migrate(true)).await?;
    let repairs = Repairs::in_directory(directory);
    let workflows = Workflows::new(Ledger::open(&ledger_file(directory))?, &repairs)?;
    let first_beat = schedule(&windlass, &workflows).await?;
    let crew = Crew::start(&url, directory)?;

    let database = Mutex::new(database);
    let work = async {
        let (answers, faults) = tokio::try_join!(
            start_runs(goals, &windlass, &workflows),
            inject(goals, &crew, &database, &proxy.cuts)
        )?;
        let settled = settle(&database).await?;
        anyhow::Ok((answers, faults, settled))
    };
    let (answers, faults, settled) = tokio::select! {
        done = work => done?,
        Err(error) = repair_halted(&windlass, &repairs) => return Err(error),
    };
    let last_beat = end_schedule(&windlass).await?;
    drop(crew);

    let database = database.into_inner();
    let (notes, torn) = ledger::read(&ledger_file(directory))?;
    let mut evidence =
        Evidence { answers, notes, beats_expected: (first_beat, last_beat), ..Evidence::default() };
    evidence.read(&database.client().await?).await?;
    report(goals, &evidence, &faults, &proxy.cuts, torn, settled, began.elapsed())?;
    let mut violations = evidence.violations();
    let audited = audit(&PostgresOptions::new(database.url()), &AuditOptions::default()).await?;
    for check in audited.checks.iter().filter(|check| check.is_violated()) {
        violations.push(format!("audit {}: {:?}", check.id, check.examples));
    }
    if violations.is_empty() {
        println!("0 violations; the audit is clean");
        return Ok(());
    }
    for violation in violations.iter().take(VIOLATIONS_MAX) {
        println!("VIOLATION {violation}");
    }
    bail!("{} violations", violations.len())
}

/// Creates the schedule. Returns its first nominal time in microseconds since 1970.
async fn schedule(windlass: &Windlass, workflows: &Workflows) -> anyhow::Result<i64> {
    let cadence = Cadence::every(Duration::from_micros(BEAT_US.unsigned_abs()))?;
    let item = Item { key: 0, number: 0 };
    let schedule = Schedule::new("beat", &workflows.beat, item, cadence);
    let record = windlass.schedule(schedule.missed(Missed::All(1_000))).await?;
    let first = record.next_at.context("the schedule has no next time")?;
    Ok(first.as_micros())
}

/// Pauses the schedule once it has caught up. Returns its last nominal time.
async fn end_schedule(windlass: &Windlass) -> anyhow::Result<i64> {
    let handle = windlass.scheduled("default", "beat")?;
    let deadline = Instant::now() + SETTLE_MAX;
    loop {
        let record = handle.get().await?.context("the schedule is gone")?;
        let next = record.next_at.context("the schedule has no next time")?;
        if next > windlass.store().now().await? {
            handle.pause().await?;
            let paused = handle.get().await?.context("the schedule is gone")?;
            let is_same = paused.next_at.is_none_or(|at| at == next);
            // It fired while it was being paused: look again.
            if is_same {
                return Ok(next.as_micros() - BEAT_US);
            }
            handle.resume().await?;
        }
        if Instant::now() > deadline {
            bail!("the schedule does not catch up: its next time is {next}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Starts the runs of all workloads at once.
async fn start_runs(
    goals: Goals,
    windlass: &Windlass,
    workflows: &Workflows,
) -> anyhow::Result<BTreeMap<Workload, Answers>> {
    let time = Duration::from_secs(goals.seconds);
    let sends = Workload::ALL.into_iter().map(async |workload| {
        let runs = (goals.tasks * workload.runs_per_thousand_tasks()).div_ceil(1_000);
        let answers = send(windlass, workflows, workload, runs, time).await?;
        anyhow::Ok((workload, answers))
    });
    Ok(try_join_all(sends).await?.into_iter().collect())
}

/// The faults that were injected.
#[derive(Default)]
struct Faults {
    kills: u32,
    freezes: u32,
    crashes: u32,
}

/// Injects all faults, each kind evenly spread over the time.
async fn inject(
    goals: Goals,
    crew: &Crew,
    database: &Mutex<&mut Database>,
    cuts: &Arc<Cuts>,
) -> anyhow::Result<Faults> {
    let every = |count: u32| Duration::from_secs(goals.seconds) / count.max(1);
    let kills = async {
        for _ in 0..goals.kills {
            tokio::time::sleep(jittered(every(goals.kills))).await;
            crew.kill()?;
        }
        anyhow::Ok(())
    };
    let freezes = async {
        let freezes = (0..goals.freezes).map(async |number| {
            tokio::time::sleep(every(goals.freezes) * number + jittered(every(goals.freezes)))
                .await;
            crew.freeze().await
        });
        try_join_all(freezes).await
    };
    let crashes = async {
        for number in 0..goals.crashes {
            tokio::time::sleep(jittered(every(goals.crashes))).await;
            let mut database = database.lock().await;
            let down = Instant::now();
            match number % 2 {
                0 => database.kill_postmaster().await?,
                _ => database.kill_backend().await?,
            }
            println!(
                "crash {} of {}: down {:.1} s",
                number + 1,
                goals.crashes,
                down.elapsed().as_secs_f64()
            );
        }
        anyhow::Ok(())
    };
    let cuts = async {
        while cuts.total() < u64::from(goals.cuts) {
            tokio::time::sleep(jittered(every(goals.cuts))).await;
            cuts.request();
        }
        anyhow::Ok(())
    };
    tokio::try_join!(kills, freezes, crashes, cuts)?;
    Ok(Faults { kills: goals.kills, freezes: goals.freezes, crashes: goals.crashes })
}

/// Half to one and a half times a duration.
fn jittered(mean: Duration) -> Duration {
    mean.mul_f64(0.5 + fastrand::f64())
}

/// Waits until every run has ended, apart from the newest of the schedule. Returns how long it took.
async fn settle(database: &Mutex<&mut Database>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let client = database.lock().await.client().await?;
    let sql = "select workflow, count(*) from windlass.runs
        where ended_at is null and workflow <> 'beat' group by workflow order by workflow";
    loop {
        let rows = client.query(sql, &[]).await?;
        if rows.is_empty() {
            return Ok(began.elapsed());
        }
        if began.elapsed() > SETTLE_MAX {
            let open = rows
                .iter()
                .map(|row| format!("{} {}", row.get::<_, i64>(1), row.get::<_, String>(0)));
            let open: Vec<String> = open.collect();
            bail!("runs do not end {SETTLE_MAX:?} after the last fault: {}", open.join(", "));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Prints what happened. Fails if the test was weaker than its goals.
fn report(
    goals: Goals,
    evidence: &Evidence,
    faults: &Faults,
    cuts: &Cuts,
    torn: usize,
    settled: Duration,
    time: Duration,
) -> anyhow::Result<()> {
    let (runs, tasks) = (evidence.runs.len(), evidence.tasks.len());
    println!("{runs} runs with {tasks} tasks in {:.0} s", time.as_secs_f64());
    let Faults { kills, freezes, crashes } = faults;
    println!("{kills} workers killed, {freezes} frozen, {crashes} database crashes");
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (before, during, after) = (count(&cuts.before), count(&cuts.during), count(&cuts.after));
    let total = cuts.total();
    println!("{total} connections cut: {before} before, {during} during, {after} after the commit");
    let repetitions: u64 = evidence.answers.values().map(|answers| answers.repetitions).sum();
    println!("{repetitions} unanswered starts repeated");
    let (notes, stale) = (evidence.notes.len(), evidence.stale_attempts());
    println!("{notes} notes in the ledger, {torn} torn; {stale} attempts ended behind a later one");
    println!("all runs ended {:.1} s after the last fault", settled.as_secs_f64());
    if (tasks as u64) < goals.tasks {
        bail!("{tasks} tasks are fewer than {}", goals.tasks);
    }
    if stale == 0 && *freezes > 0 {
        bail!("no frozen worker ended an attempt behind a later one");
    }
    if torn > usize::try_from(*kills)? {
        bail!("{torn} torn lines in the ledger after {kills} kills");
    }
    Ok(())
}
