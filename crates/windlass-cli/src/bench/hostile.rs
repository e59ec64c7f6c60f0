//! What hostile tokens of one tenant cost another one, and the server's memory.
//!
//! A normal tenant starts runs at a steady rate, through a server that is a process of its own and
//! asks for tokens. For each attack, quiet and attacked phases alternate, in turn with the one or the
//! other first, and each round has a ratio of the 99th percentiles of its two phases. The figure is the
//! median of the ratios: absolute times swing with the machine, and so does a single round. A start
//! takes from when it was due, so that a server that answers nothing for a while is not measured once
//! only.
//!
//! Hostile clients, server and PostgreSQL share this machine. The clients are a process at the lowest
//! priority, and a quiet phase has one as well, which computes for as long as the clients of the last
//! attacked phase did and sends nothing. So a ratio has the work that an attack causes in the server
//! and in PostgreSQL, and not that of the clients. The control compares clients that compute all the
//! time with none. Hostile clients come from another loopback address than the normal tenant: a server
//! gives each address its share.
//!
//! Memory is the largest resident set of the server in an attacked phase, as Linux counts it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::task::JoinSet;
use windlass::{Ctx, Role, TaskError, Windlass, Workflow};

use super::attack::{self, Attack, Attacker};
use super::ground::Ground;
use super::report::Report;
use super::server::Serving;
use super::work::{Counter, chain, start_for};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Starts per second of the normal tenant
    #[arg(long, default_value_t = 50, value_parser = crate::text::whole_number::<u32>(1..=10_000))]
    rate: u32,

    /// Seconds of each phase
    #[arg(long, default_value_t = 5, value_parser = crate::text::whole_number::<u64>(1..=3_600))]
    seconds: u64,

    /// Rounds of a quiet and an attacked phase, for each attack
    #[arg(long, default_value_t = 5, value_parser = crate::text::whole_number::<u32>(1..=100))]
    rounds: u32,

    /// Runs of the hostile tenant
    #[arg(long, default_value_t = 200_000, value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    runs: u32,

    /// Runs of the hostile tenant with an input of 0.9 MB
    #[arg(long, default_value_t = 200, value_parser = crate::text::whole_number::<u32>(0..=100_000))]
    large_runs: u32,

    /// Only these attacks; may be repeated
    #[arg(long)]
    attack: Vec<Attack>,
}

/// Every attack, the control first.
const ATTACKS: [Attack; 8] = [
    Attack::Burn,
    Attack::Bodies,
    Attack::Elements,
    Attack::Lists,
    Attack::Filters,
    Attack::Answers,
    Attack::Claims,
    Attack::Joins,
];

/// The tenants.
const NORMAL: &str = "normal";
const HOSTILE: &str = "hostile";

/// The tokens of hostile viewers: each may read four lists at a time.
const VIEWERS: usize = 8;

/// The most that starts of the normal tenant may take under attack, as a multiple of a quiet phase.
const RATIO_MAX: f64 = 1.5;

/// The most memory of a server with default options, as docs/server.md says, in MiB.
const MEMORY_MAX: f64 = 896.0;

/// The bytes of a large input.
const LARGE_BYTES: usize = 900_000;

/// The longest time for statements of an attack to end after it.
const SETTLE_MAX: Duration = Duration::from_secs(15);

pub(crate) async fn run(arguments: &Arguments, ground: &Ground) -> anyhow::Result<Report> {
    let mut server = Serving::start(ground).await?;
    let workflow = chain("bench-hostile", 1, &Counter::expecting(u64::MAX));
    seed(arguments, ground).await?;
    let all = Serving::token_for(ground, Role::Worker, None).await?;
    attack::register(server.url(), all.text().expose()).await?;
    let normal = server.engine_for(ground, NORMAL).await?;
    let mut tokens = Vec::new();
    for _ in 0..VIEWERS {
        tokens.push(Serving::token_for(ground, Role::Viewer, Some(HOSTILE)).await?);
    }
    tokens.push(Serving::token_for(ground, Role::Worker, Some(HOSTILE)).await?);
    let tokens = tokens.iter().map(|token| token.text().expose().to_owned());
    let tokens = tokens.collect::<Vec<_>>().join(" ");
    let worker = ground.engine().await?.worker().register(&workflow).slots(100).spawn()?;
    let scene = Scene { arguments, ground, server: &server, workflow, normal };
    // Once before, so that all find the connections and tables warm.
    scene.phase().await?;
    let mut report = Report::new("hostile");
    let chosen = |attack: &Attack| arguments.attack.is_empty() || arguments.attack.contains(attack);
    for attack in ATTACKS.into_iter().filter(chosen) {
        scene.measure(attack, &tokens, &mut report).await?;
    }
    worker.drain().await?;
    server.child.start_kill()?;
    server.child.wait().await?;
    Ok(report)
}

/// Gives the hostile tenant its runs, which no worker takes.
async fn seed(arguments: &Arguments, ground: &Ground) -> anyhow::Result<()> {
    let seeding = ground.progress.phase("seeding", u64::from(arguments.large_runs));
    let engine = ground.engine().await?;
    let small = chain("bench-seeded", 1, &Counter::expecting(u64::MAX));
    start_for(&engine, &small, HOSTILE, arguments.runs as usize).await?;
    let mut large = Workflow::<String>::builder("bench-large");
    large.task("task").run(async |_: Ctx<String>| Ok::<_, TaskError>(()));
    let large = large.build()?;
    for _ in 0..arguments.large_runs {
        engine.start(&large, "x".repeat(LARGE_BYTES)).tenant(HOSTILE).await?;
        seeding.step();
    }
    ground.settle().await
}

struct Scene<'a> {
    arguments: &'a Arguments,
    ground: &'a Ground,
    server: &'a Serving,
    workflow: Workflow<()>,
    normal: Windlass,
}

/// What was seen in a phase.
struct Phase {
    times: Vec<Duration>,
    failures: BTreeMap<String, u64>,
}

impl Phase {
    /// The time that `percent` % of the starts do not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let at = (self.times.len() * percent / 100).min(self.times.len().saturating_sub(1));
        self.times.get(at).copied().unwrap_or_default()
    }
}

impl Scene<'_> {
    /// Measures one attack.
    async fn measure(
        &self,
        attack: Attack,
        tokens: &str,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let progress = self.ground.progress.phase(attack.label(), self.arguments.rounds.into());
        let is_control = attack == Attack::Burn;
        let (mut ratios, mut medians) = (Vec::new(), Vec::new());
        let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
        let (mut memory, mut answered, mut refused) = (0.0_f64, 0, 0);
        let mut failures = BTreeMap::<String, u64>::new();
        // The share of each core that the hostile clients of the last attacked phase took.
        let mut percent = 0;
        for round in 0..self.arguments.rounds {
            let mut pair = [None, None];
            for is_attacked in [round % 2 == 0, round % 2 == 1] {
                let phase = if is_attacked {
                    self.server.forget_peak()?;
                    let attacker = Attacker::start(self.server.url(), attack, tokens).await?;
                    let (began, before) = (Instant::now(), attacker.cpu()?);
                    let phase = self.phase().await?;
                    percent = percent_of(attacker.cpu()?.saturating_sub(before), began.elapsed())?;
                    let (yes, no) = attacker.end().await?;
                    (answered, refused) = (answered + yes, refused + no);
                    memory = memory.max(self.server.peak_mebibytes()?);
                    self.settle().await?;
                    for (why, count) in &phase.failures {
                        *failures.entry(why.clone()).or_default() += count;
                    }
                    attacked.extend_from_slice(&phase.times);
                    phase
                } else {
                    let burn = match is_control {
                        true => None,
                        false => Some(Attacker::burn(self.server.url(), percent, tokens).await?),
                    };
                    let phase = self.phase().await?;
                    if let Some(burn) = burn {
                        burn.end().await?;
                    }
                    let failed = phase.failures.keys().next();
                    anyhow::ensure!(failed.is_none(), "a start failed in peace: {failed:?}");
                    quiet.extend_from_slice(&phase.times);
                    phase
                };
                pair[usize::from(is_attacked)] = Some(phase);
            }
            if let [Some(quiet), Some(attacked)] = pair {
                let ratio = |percent| {
                    let (quiet, attacked) =
                        (quiet.percentile(percent), attacked.percentile(percent));
                    attacked.as_secs_f64() / quiet.as_secs_f64()
                };
                medians.push(ratio(50));
                ratios.push(ratio(99));
            }
            progress.step();
        }
        drop(progress);
        anyhow::ensure!(answered + refused > 0, "the attack {} did not happen", attack.word());
        let (word, label) = (attack.word(), attack.label());
        report.add_times(&format!("{word}_quiet"), &format!("{label}: start without"), &mut quiet);
        report.add_times(
            &format!("{word}_start"),
            &format!("{label}: start beside"),
            &mut attacked,
        );
        report.add(
            format!("{word}_p50_ratio"),
            format!("{label}: p50, ratio"),
            median(medians),
            "",
        );
        let (key, name) = (format!("{word}_p99_ratio"), format!("{label}: p99, ratio"));
        match is_control {
            true => report.add(key, name, median(ratios), ""),
            false => report.add_at_most(key, name, median(ratios), "", RATIO_MAX),
        }
        if is_control {
            return Ok(());
        }
        let failed: u64 = failures.values().sum();
        let name = failures.keys().next().map_or(String::new(), |why| format!(" ({why})"));
        let label_of = |what: &str| format!("{label}: {what}");
        let failed_label = label_of(&format!("failed starts{name}"));
        report.add_at_most(format!("{word}_failed"), failed_label, failed as f64, "", 0.0);
        let name = label_of("memory of the server");
        report.add_at_most(format!("{word}_mebibytes"), name, memory, "MiB", MEMORY_MAX);
        let time = (self.arguments.seconds * u64::from(self.arguments.rounds)) as f64;
        for (key, what, count) in
            [("answered", "answered", answered), ("refused", "refused", refused)]
        {
            let rate = count as f64 / time;
            report.add(format!("{word}_{key}"), label_of(what), rate, "per second");
        }
        Ok(())
    }

    /// Starts runs of the normal tenant at its rate, whether or not those before are answered.
    async fn phase(&self) -> anyhow::Result<Phase> {
        let Arguments { rate, seconds, .. } = *self.arguments;
        let mut starts = JoinSet::new();
        let began = Instant::now();
        for number in 0..u64::from(rate) * seconds {
            let due = began + Duration::from_secs_f64(number as f64 / f64::from(rate));
            tokio::time::sleep_until(due.into()).await;
            let start = self.normal.start(&self.workflow, ()).tenant(NORMAL);
            starts.spawn(async move { start.await.map(|_| due.elapsed()) });
        }
        let mut phase = Phase { times: Vec::new(), failures: BTreeMap::new() };
        while let Some(started) = starts.join_next().await {
            match started? {
                Ok(time) => phase.times.push(time),
                Err(error) => *phase.failures.entry(error.to_string()).or_default() += 1,
            }
        }
        phase.times.sort_unstable();
        Ok(phase)
    }

    /// Waits until the statements of an attack have ended: they must not slow the quiet phase that
    /// follows.
    async fn settle(&self) -> anyhow::Result<()> {
        let long = "select count(*) from pg_stat_activity where datname = current_database() \
                    and state = 'active' and backend_type = 'client backend' \
                    and pid <> pg_backend_pid() and query_start < now() - interval '50 ms'";
        let began = Instant::now();
        while self.ground.client.query_one(long, &[]).await?.get::<_, i64>(0) > 0 {
            anyhow::ensure!(began.elapsed() < SETTLE_MAX, "statements go on after an attack");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(())
    }
}

impl Serving {
    /// An engine for one tenant, with a worker's token.
    async fn engine_for(&self, ground: &Ground, tenant: &str) -> anyhow::Result<Windlass> {
        let token = Serving::token_for(ground, Role::Worker, Some(tenant)).await?;
        Ok(self.engine_with(&token)?)
    }

    /// Lets the largest resident set begin at the current one.
    fn forget_peak(&self) -> anyhow::Result<()> {
        let path = format!("/proc/{}/clear_refs", self.pid()?);
        std::fs::write(&path, "5").with_context(|| format!("{path} cannot be written"))
    }

    /// The largest resident set since [`forget_peak`](Serving::forget_peak), in MiB.
    fn peak_mebibytes(&self) -> anyhow::Result<f64> {
        Ok(self.kilobytes("VmHWM:")? / 1024.0)
    }
}

/// Processor time as a share of each core, in percent.
fn percent_of(cpu: Duration, time: Duration) -> anyhow::Result<u32> {
    let cores = std::thread::available_parallelism()?.get();
    let share = cpu.as_secs_f64() / time.as_secs_f64() / cores as f64;
    Ok((share * 100.0).round().min(100.0) as u32)
}

/// The middle of some values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_noisy_round_does_not_move_the_median() {
        assert_eq!(median(vec![1.1, 40.0, 1.0]), 1.1);
    }

    #[test]
    fn the_99th_percentile_of_a_phase_is_one_of_its_slowest_starts() {
        let times = (1..=200).map(Duration::from_millis).collect();
        let phase = Phase { times, failures: BTreeMap::new() };
        assert_eq!(phase.percentile(99), Duration::from_millis(199));
        let phase = Phase { times: Vec::new(), failures: BTreeMap::new() };
        assert_eq!(phase.percentile(99), Duration::ZERO);
    }
}
