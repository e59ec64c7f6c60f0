//! What a server costs: throughput and starts through it beside a connection of one's own, and
//! workers that have nothing to do.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use windlass::remote::RemoteOptions;
use windlass::store::{NewToken, TokenStore as _};
use windlass::{Operator, Role, Roles, Tenant, Token, Windlass};
use windlass_server::token::{mint, tag_of};

use super::crew::{Force, Way, drain_by};
use super::ground::Ground;
use super::meter::cpu_of;
use super::report::Report;
use super::work::{Counter, chain};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many tasks to drain for each figure.
    #[arg(long, default_value_t = 100_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    tasks: u32,

    /// With how many worker processes.
    #[arg(long, default_value_t = 4, value_parser = crate::text::whole_number::<u32>(1..=64))]
    processes: u32,

    /// How many tasks a worker runs at once.
    #[arg(long, default_value_t = 500, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    slots: u32,

    /// How many starts, one after the other.
    #[arg(long, default_value_t = 500, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    starts: u32,

    /// How many workers are many; together they run as many tasks at once as the others.
    #[arg(long, default_value_t = 1_000, value_parser = crate::text::whole_number::<u32>(1..=5_000))]
    crowd: u32,

    /// How many workers have nothing to do.
    #[arg(long, default_value_t = 500, value_parser = crate::text::whole_number::<u32>(1..=5_000))]
    idle: u32,

    /// How long they are watched, in seconds.
    #[arg(long, default_value_t = 20, value_parser = crate::text::whole_number::<u64>(1..=3_600))]
    seconds: u64,
}

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let mut report = Report::new("server");
    let mut server = Serving::start(ground).await?;
    let tasks = f64::from(arguments.tasks);
    let Arguments { processes, slots, crowd, .. } = *arguments;
    let few = Force { processes, workers: 1, slots };
    let workers = crowd.div_ceil(processes);
    let many = Force { processes, workers, slots: slots.div_ceil(workers) };
    let drain = async |way: &Way, force| drain_by(ground, way, force, arguments.tasks).await;
    let (near, far) = (Way::database(ground.url()), server.way());
    // Once before, so that both find the tables as used as each other.
    drain(&near, few).await?;
    let direct = tasks / drain(&near, few).await?.as_secs_f64();
    let served = tasks / drain(&far, few).await?.as_secs_f64();
    let crowded = tasks / drain(&far, many).await?.as_secs_f64();
    report.add("direct_tasks_per_second", "tasks, connected to the database", direct, "per second");
    report.add("tasks_per_second", "tasks, through a server", served, "per second");
    report.add("kept", "kept", served / direct, "");
    let label = format!("tasks, through a server with {} workers", processes * workers);
    report.add("crowd_tasks_per_second", label, crowded, "per second");
    let direct = latency(arguments, &ground.engine().await?).await?;
    let served = latency(arguments, &server.engine()?).await?;
    report.add("direct_start_p50_ms", "start, connected to the database, p50", direct, "ms");
    report.add("start_p50_ms", "start, through a server, p50", served, "ms");
    let (share, megabytes) = idle(arguments, ground, &server).await?;
    let label = |what: &str| format!("{what} of a server with {} idle workers", arguments.idle);
    report.add("idle_cpu_percent", label("processor time"), share, "% of a core");
    report.add("idle_megabytes", label("memory"), megabytes, "MB");
    server.child.start_kill()?;
    server.child.wait().await?;
    Ok(report)
}

/// A server as a process of its own, which asks everyone for a token as one that is installed does.
pub(super) struct Serving {
    pub(super) child: Child,
    url: String,
    /// May do everything.
    token: Token,
}

impl Serving {
    /// One for the database of a benchmark.
    pub(super) async fn start(ground: &Ground) -> anyhow::Result<Serving> {
        let token = Serving::token_for(ground, Role::Admin, None).await?;
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command.env("DATABASE_URL", ground.url()).env_remove("WINDLASS_SERVER");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("the server cannot be started")?;
        let out = child.stdout.take().context("its output is a pipe")?;
        let line = BufReader::new(out).lines().next_line().await?.context("the server ended")?;
        let url = line.strip_prefix("WINDLASS_SERVER=").context("the server says where it is")?;
        Ok(Serving { child, url: url.to_owned(), token })
    }

    /// Creates a token, for one tenant or for all.
    pub(super) async fn token_for(
        ground: &Ground,
        role: Role,
        tenant: Option<&str>,
    ) -> anyhow::Result<Token> {
        let roles = Roles::from(role);
        let token = mint(roles)?;
        let (id, tag, name) = (token.id(), tag_of(&token), Operator::new("bench")?);
        let tenant = tenant.map(Tenant::new).transpose()?;
        let new = NewToken { id, tag, name, roles, tenant, expires_at: None };
        ground.store().await?.create_token(new).await.map_err(windlass::Error::from)?;
        Ok(token)
    }

    /// An engine on it, with a connection of its own.
    pub(super) fn engine(&self) -> Result<Windlass, windlass::Error> {
        self.engine_with(&self.token)
    }

    /// An engine on it with another token.
    pub(super) fn engine_with(&self, token: &Token) -> Result<Windlass, windlass::Error> {
        Windlass::connect_server(RemoteOptions::new(&self.url).token(token.text()))
    }

    /// Its address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// A figure of its memory in `/proc/<pid>/status`, in KiB.
    pub(super) fn kilobytes(&self, field: &str) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.context("its memory can be read")
    }

    /// How worker processes reach it.
    fn way(&self) -> Way {
        Way::server(&self.url, self.token.text())
    }

    pub(super) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the server has ended")
    }
}

/// How long a start takes, in milliseconds: half of them less.
async fn latency(arguments: &Arguments, windlass: &Windlass) -> anyhow::Result<f64> {
    let workflow = chain("bench-start", 1, &Counter::expecting(u64::MAX));
    windlass.start(&workflow, ()).await?;
    let mut times = Vec::with_capacity(arguments.starts as usize);
    for _ in 0..arguments.starts {
        let began = Instant::now();
        windlass.start(&workflow, ()).await?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2].as_secs_f64() * 1e3)
}

/// What workers cost a server that have nothing to do: how much of a core, and megabytes.
async fn idle(
    arguments: &Arguments,
    ground: &Ground,
    server: &Serving,
) -> anyhow::Result<(f64, f64)> {
    let workflow = chain("bench-idle", 1, &Counter::expecting(u64::MAX));
    let mut workers = Vec::new();
    for _ in 0..arguments.idle {
        // Each with a connection of its own, as processes have.
        let windlass = server.engine()?;
        workers.push(windlass.worker().register(&workflow).spawn()?);
    }
    // Until all have joined, and have looked for tasks more and more rarely.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let watching = ground.progress.phase("watching", arguments.seconds);
    let before = cpu_of(server.pid()?).context("its processor time can be read")?;
    let began = Instant::now();
    for _ in 0..arguments.seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        watching.step();
    }
    let time = began.elapsed();
    let after = cpu_of(server.pid()?).context("its processor time can be read")?;
    let share = (after - before).as_secs_f64() / time.as_secs_f64() * 100.0;
    let kilobytes = server.kilobytes("VmRSS:")?;
    for worker in workers {
        worker.drain().await?;
    }
    Ok((share, kilobytes / 1024.0))
}
