//! Worker processes of a benchmark: this program again, as `windlass bench-worker`.

use std::io::Write as _;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use windlass::remote::{RemoteOptions, TOKEN_VARIABLE};
use windlass::store::postgres::PostgresOptions;
use windlass::telemetry::LOG_VARIABLE;
use windlass::{Ctx, Secret, TaskError, Windlass, Workflow};

use super::ground::Ground;
use super::work::{Counter, chain, start};
use crate::serve::log_as;

/// How long a process may take for what it was told.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Where a process finds the address of the database.
const URL: &str = "WINDLASS_BENCH_WORKER_URL";

/// What a process says when it is ready to begin, and when a task was begun.
const READY: &str = "ready";
const BEGUN: &str = "begun";

/// How many checkpoints a task keeps that does nothing else.
const CHECKPOINTS: u32 = 3;

/// What the tasks of a worker process do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Task {
    /// Nothing.
    Nothing,
    /// Say that they were begun, and never end.
    Endless,
    /// Keep a few checkpoints, from the newest that is kept, one after the other.
    Checkpoints,
}

impl Task {
    /// The name of the workflow that they belong to.
    pub(crate) fn workflow(self) -> &'static str {
        match self {
            Task::Nothing => "bench-noop",
            Task::Endless => "bench-endless",
            Task::Checkpoints => "bench-checkpoints",
        }
    }

    fn build(self) -> anyhow::Result<Workflow<()>> {
        let mut workflow = Workflow::<()>::builder(self.workflow());
        workflow.task("task-0").run(move |ctx: Ctx<()>| async move {
            match self {
                Task::Nothing => Ok::<_, TaskError>(()),
                Task::Endless => {
                    say(BEGUN).map_err(|error| TaskError::new(error.to_string()))?;
                    std::future::pending().await
                }
                Task::Checkpoints => {
                    let kept = ctx.last_checkpoint()?.unwrap_or(0);
                    for number in kept..CHECKPOINTS {
                        ctx.checkpoint(&(number + 1)).await?;
                    }
                    Ok(())
                }
            }
        });
        Ok(workflow.build()?)
    }
}

/// What `windlass bench-worker` is told.
#[derive(Clone, clap::Args)]
pub(crate) struct Arguments {
    /// The address of the database, which others must not see among the arguments, or of a
    /// server.
    #[arg(long, env = URL, hide_env_values = true)]
    url: String,

    /// What its tasks do.
    #[arg(long)]
    task: Task,

    /// How many workers there are.
    #[arg(long, default_value_t = 1)]
    workers: u32,

    /// How many tasks each runs at once.
    #[arg(long)]
    slots: usize,

    /// Its lease, in milliseconds.
    #[arg(long)]
    lease_ms: Option<u64>,
}

impl std::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address may hold a password.
        f.debug_struct("Arguments").field("task", &self.task).finish_non_exhaustive()
    }
}

/// Says that it is ready, waits for a line, works until its standard input is closed.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // Unless it is asked to, it says nothing beside the benchmark.
    let log = std::env::var_os(LOG_VARIABLE).map(|_| log_as("windlass-bench-worker"));
    let _telemetry = log.transpose()?;
    let mut engines = Vec::new();
    for _ in 0..arguments.workers {
        engines.push(match arguments.url.starts_with("http://") {
            true => Windlass::connect_server(RemoteOptions::from_env(&arguments.url)?)?,
            false => Windlass::connect(PostgresOptions::new(&arguments.url)).await?,
        });
    }
    let workflow = arguments.task.build()?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    say(READY)?;
    if lines.next_line().await?.is_some() {
        let mut workers = Vec::new();
        for windlass in &engines {
            let mut worker = windlass.worker().register(&workflow).slots(arguments.slots);
            if let Some(millis) = arguments.lease_ms {
                worker = worker.lease(Duration::from_millis(millis));
            }
            workers.push(worker.spawn()?);
        }
        while lines.next_line().await?.is_some() {}
        let mut ends = JoinSet::new();
        for worker in workers {
            ends.spawn(worker.drain());
        }
        while let Some(ended) = ends.join_next().await {
            ended??;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn say(word: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}")?;
    out.flush()
}

/// How worker processes reach what they work for.
pub(crate) struct Way {
    url: String,
    token: Option<Secret>,
}

impl Way {
    /// By a connection to a database.
    pub(crate) fn database(url: &str) -> Self {
        Way { url: url.to_owned(), token: None }
    }

    /// Through a server, which is shown a token.
    pub(crate) fn server(url: &str, token: Secret) -> Self {
        Way { url: url.to_owned(), token: Some(token) }
    }
}

/// How many work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Force {
    pub(crate) processes: u32,
    /// Of each process; each has a connection of its own.
    pub(crate) workers: u32,
    /// Of each worker.
    pub(crate) slots: u32,
}

/// Some worker processes. Dropped, they are killed.
pub(crate) struct Crew(Vec<Member>);

struct Member {
    child: Child,
    /// `None` once it was told to end.
    commands: Option<ChildStdin>,
    words: Lines<BufReader<ChildStdout>>,
}

impl Crew {
    /// Starts processes on a database or a server, and waits until they are connected.
    pub(crate) async fn hire(
        way: &Way,
        force: Force,
        task: Task,
        lease: Option<Duration>,
    ) -> anyhow::Result<Crew> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut crew = Crew(Vec::new());
        for _ in 0..force.processes {
            let mut command = Command::new(&program);
            command.env(URL, &way.url);
            if let Some(token) = &way.token {
                command.env(TOKEN_VARIABLE, token.expose());
            }
            command.args(["bench-worker", "--workers", &force.workers.to_string()]);
            command.args(["--slots", &force.slots.to_string()]);
            let task = task.to_possible_value().context("every task has a name")?;
            command.args(["--task", task.get_name()]);
            if let Some(lease) = lease {
                command.args(["--lease-ms", &lease.as_millis().to_string()]);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
            let mut child = command.spawn().context("a worker process cannot be started")?;
            let commands = child.stdin.take();
            let out = child.stdout.take().context("its output is a pipe")?;
            let words = BufReader::new(out).lines();
            crew.0.push(Member { child, commands, words });
        }
        for member in &mut crew.0 {
            member.hear(READY).await?;
        }
        Ok(crew)
    }

    /// Lets all of them begin.
    pub(crate) async fn go(&mut self) -> anyhow::Result<()> {
        for member in &mut self.0 {
            let commands = member.commands.as_mut().context("it was told to end")?;
            commands.write_all(b"go\n").await?;
            commands.flush().await?;
        }
        Ok(())
    }

    /// Waits until a number of tasks were begun by each.
    pub(crate) async fn begun(&mut self, count: usize) -> anyhow::Result<()> {
        for member in &mut self.0 {
            for _ in 0..count {
                member.hear(BEGUN).await?;
            }
        }
        Ok(())
    }

    /// Fails if one of them has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        for member in &mut self.0 {
            if let Some(status) = member.child.try_wait()? {
                bail!("a worker process has ended: {status}");
            }
        }
        Ok(())
    }

    /// Kills all of them, with SIGKILL.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        for member in &mut self.0 {
            member.child.start_kill()?;
        }
        for member in &mut self.0 {
            member.child.wait().await?;
        }
        Ok(())
    }

    /// Lets all of them drain and end.
    pub(crate) async fn dismiss(mut self) -> anyhow::Result<()> {
        for member in &mut self.0 {
            member.commands = None;
        }
        for member in &mut self.0 {
            let status = tokio::time::timeout(ANSWER_MAX, member.child.wait()).await??;
            anyhow::ensure!(status.success(), "a worker process has ended: {status}");
        }
        Ok(())
    }
}

impl Member {
    async fn hear(&mut self, expected: &str) -> anyhow::Result<()> {
        let line = tokio::time::timeout(ANSWER_MAX, self.words.next_line()).await;
        match line.context("a worker process says nothing")?? {
            Some(word) if word == expected => Ok(()),
            Some(word) => bail!("a worker process says {word:?}, not {expected:?}"),
            None => bail!("a worker process has ended"),
        }
    }
}

/// Lets processes on a database or a server drain a backlog together, and answers how long it takes.
pub(crate) async fn drain_by(
    ground: &Ground,
    way: &Way,
    force: Force,
    tasks: u32,
) -> anyhow::Result<Duration> {
    let workflow = chain(Task::Nothing.workflow(), 1, &Counter::expecting(u64::MAX));
    let windlass = ground.engine().await?;
    start(&windlass, &workflow, tasks as usize, 1).await?;
    ground.settle().await?;
    let mut crew = Crew::hire(way, force, Task::Nothing, None).await?;
    let began = Instant::now();
    crew.go().await?;
    // The narrow tables are empty when everything has ended.
    let sql = "select exists (select from windlass.ready) or exists (select from windlass.leases)";
    while ground.client.query_one(sql, &[]).await?.get(0) {
        crew.check()?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let time = began.elapsed();
    crew.dismiss().await?;
    Ok(time)
}
