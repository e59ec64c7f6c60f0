//! Durable functions that all sleep until the same moment: how late they wake.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use windlass::{Ctx, Function, TaskError, Timestamp};

use super::clock::Clock;
use super::ground::Ground;
use super::report::Report;
use super::work::{Counter, start};

const NAME: &str = "bench-sleeper";

/// How many functions a second are thought to fall asleep at least, if it is not said how long
/// they may take; and the least time for few.
const ASLEEP_PER_SECOND: u32 = 2_000;
const ASLEEP_MIN: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// How many functions sleep until the same moment; 0 to leave that out.
    #[arg(long, default_value_t = 100_000, value_parser = crate::text::whole_number::<u32>(0..=10_000_000))]
    sleepers: u32,

    /// How long after the worker began that moment is, in seconds: all must be asleep by then.
    /// Three seconds, and one more for every 2,000 sleepers, if not said.
    #[arg(long, value_parser = crate::text::whole_number::<u64>(1..=86_400))]
    asleep_seconds: Option<u64>,
}

impl Arguments {
    fn asleep(&self) -> Duration {
        let each = Duration::from_secs(u64::from(self.sleepers.div_ceil(ASLEEP_PER_SECOND)));
        self.asleep_seconds.map_or(ASLEEP_MIN + each, Duration::from_secs)
    }
}

pub(crate) async fn measure(
    arguments: &Arguments,
    slots: u32,
    ground: &Ground,
    report: &mut Report,
) -> anyhow::Result<()> {
    if arguments.sleepers == 0 {
        return Ok(());
    }
    let Woken { mut ready, mut late, ended } = wake(arguments, slots, ground).await?;
    report.add("sleepers", "functions that sleep until one moment", arguments.sleepers.into(), "");
    add_times(report, "sleeper_ready", "from that moment until one can be claimed", &mut ready);
    add_times(report, "sleeper_late", "from that moment until one goes on", &mut late);
    report.add("sleepers_ended_ms", "until all have ended", ended.as_secs_f64() * 1e3, "ms");
    let per_second = f64::from(arguments.sleepers) / ended.as_secs_f64();
    report.add("sleepers_awake_per_second", "sleepers woken and ended", per_second, "per second");
    Ok(())
}

fn add_times(report: &mut Report, key: &str, label: &str, times: &mut [Duration]) {
    report.add_times(key, label, times);
    let max = times.last().copied().unwrap_or_default().as_secs_f64() * 1e3;
    report.add(format!("{key}_max_ms"), format!("{label}, the last"), max, "ms");
}

/// How long after they were due sleepers woke.
struct Woken {
    /// Each until it could be claimed, by the history.
    ready: Vec<Duration>,
    /// Each until it went on behind its sleep.
    late: Vec<Duration>,
    /// All until their runs had ended.
    ended: Duration,
}

async fn wake(arguments: &Arguments, slots: u32, ground: &Ground) -> anyhow::Result<Woken> {
    let count = arguments.sleepers as usize;
    let counter = Counter::expecting(count as u64);
    let windlass = ground.engine().await?;
    let filling = ground.progress.phase("filling", count as u64);
    // The moment is chosen once all of them are there, and no handler runs before.
    start(&windlass, &*sleeper(Timestamp::from_micros(0), &Woke::default(), &counter)?, count, 1)
        .await?;
    drop(filling);
    ground.settle().await?;
    let clock = Clock::read(&ground.client).await?;
    let due = clock.database_after(arguments.asleep());
    let woke = Woke::default();
    let function = sleeper(due, &woke, &counter)?;
    let waking = ground.progress.phase("sleeping", count as u64);
    waking.follow(&counter);
    let worker = windlass.worker().register(&function).slots(slots as usize).spawn()?;
    counter.reached().await;
    drop(waking);
    worker.drain().await?;
    let (ready, ended) = told(ground, count).await?;
    let late = |at: &Instant| not_early(clock.micros_since(due, *at));
    let late = woke.lock().unwrap_or_else(PoisonError::into_inner).iter().map(late).collect();
    let ready = ready.into_iter().map(|at| not_early(at - due.as_micros())).collect();
    let (late, ready): (anyhow::Result<_>, anyhow::Result<_>) = (late, ready);
    Ok(Woken { ready: ready?, late: late?, ended: not_early(ended - due.as_micros())? })
}

/// When sleepers went on, in no order.
type Woke = Arc<Mutex<Vec<Instant>>>;

/// A function that sleeps and notes when it goes on.
fn sleeper(
    due: Timestamp,
    woke: &Woke,
    counter: &Arc<Counter>,
) -> anyhow::Result<Function<(), ()>> {
    let (woke, counter) = (Arc::clone(woke), Arc::clone(counter));
    let handler = move |ctx: Ctx<()>| {
        let (woke, counter) = (Arc::clone(&woke), Arc::clone(&counter));
        async move {
            ctx.sleep_until(due).await?;
            woke.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
            counter.add();
            Ok::<_, TaskError>(())
        }
    };
    Ok(Function::new(NAME, handler)?)
}

/// When each sleeper became ready, and when the last of their runs ended, by the history.
async fn told(ground: &Ground, count: usize) -> anyhow::Result<(Vec<i64>, i64)> {
    let sql = "
        select (extract(epoch from e.at) * 1e6)::bigint
        from windlass.runs r join windlass.events e on e.run_id = r.id
        where r.workflow = $1 and e.kind = 'queued' and e.from_state = 'scheduled'";
    let rows = ground.client.query(sql, &[&NAME]).await?;
    if rows.len() != count {
        bail!(
            "{} of {count} functions were asleep when they were due: --asleep-seconds gives them \
             longer",
            rows.len()
        );
    }
    let sql = "
        select count(r.ended_at), (extract(epoch from max(r.ended_at)) * 1e6)::bigint
        from windlass.runs r
        where r.workflow = $1 and r.state = 'succeeded'";
    let last = ground.client.query_one(sql, &[&NAME]).await?;
    let ended: i64 = last.get(0);
    ensure!(usize::try_from(ended) == Ok(count), "{ended} of {count} sleepers have ended");
    Ok((rows.iter().map(|row| row.get(0)).collect(), last.get(1)))
}

/// A time after a sleep was due.
fn not_early(micros: i64) -> anyhow::Result<Duration> {
    let Ok(late) = u64::try_from(micros) else {
        bail!("a sleeper woke {} µs before it was due", micros.unsigned_abs());
    };
    Ok(Duration::from_micros(late))
}
