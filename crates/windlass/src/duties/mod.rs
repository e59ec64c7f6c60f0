//! What happens by itself: the background duties, each done by one process at a time.
//!
//! Any process may do any duty, and sweeps are correct however many do them at once. That
//! one leads is for calm: the others ask about once per time to live whether it still does.
//! This module decides when to campaign, to look and to sweep; what a sweep does is a verb
//! of the store, which refuses a leader that was replaced.

mod leader;
mod own;
mod roster;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::leader::Leader;
use self::own::declare;
use self::roster::Roster;
use crate::backoff::Backoff;
use crate::error::{Error, ErrorKind};
use crate::metrics::Metrics;
use crate::process::Gate;
use crate::store::{BATCH_MAX, Duty, Hints, Store, StoreError, Sweep};
use crate::worker::SETTING_MAX;
use windlass_core::WorkerName;

pub use self::own::DutyCtx;
pub(crate) use self::own::{OwnDuty, OwnSettings};

/// The longest pause between two looks of a leader, whatever its interval is: a lease that is
/// longer is seen before it ends, without a hint that it began.
pub(crate) const LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);

const _: () = assert!(Duty::PromoteDue.batch() <= BATCH_MAX);

/// The shortest time to live of a leader: below it, a slow answer costs the leadership.
pub(crate) const TTL_MIN: Duration = Duration::from_secs(2);

/// Processes that wait for the same duty of their program ask within this time of it, and within
/// a tenth of its interval.
pub(crate) const SPREAD_MAX: Duration = Duration::from_millis(500);

/// The time to live of a leader if nothing is said.
const TTL: Duration = Duration::from_secs(10);

/// How a process does the background duties.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
/// use std::time::Duration;
/// use windlass::{DutyOptions, Windlass};
///
/// let windlass = Windlass::memory();
/// let options = DutyOptions::default().name("scheduler-1").ttl(Duration::from_secs(5));
/// let duties = windlass.duties(options)?;
/// duties.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DutyOptions {
    pub(crate) interval: Duration,
    pub(crate) ttl: Duration,
    pub(crate) rotation: Option<Duration>,
    pub(crate) name: String,
    pub(crate) seed: u64,
    /// Whether one process leads. In the test kit all do everything, because a term that has
    /// to be renewed would give an idle engine timers to step through.
    pub(crate) is_led: bool,
    pub(crate) metrics: Arc<Metrics>,
    /// The duties of the program.
    pub(crate) own: Vec<OwnDuty>,
    pub(crate) grace: Duration,
}

impl Default for DutyOptions {
    fn default() -> Self {
        DutyOptions {
            interval: Duration::from_secs(1),
            ttl: TTL,
            rotation: None,
            name: format!("duties-{}", std::process::id()),
            seed: 0,
            is_led: true,
            metrics: Arc::default(),
            own: Vec::new(),
            grace: Duration::from_secs(30),
        }
    }
}

impl From<Duration> for DutyOptions {
    /// The options of an interval, with nothing else said.
    fn from(interval: Duration) -> Self {
        DutyOptions::default().interval(interval)
    }
}

impl DutyOptions {
    /// How often the leader looks whether anything is due while it cannot hear from other
    /// processes what they schedule; 1 s if not said. While it can, it looks a fifth as
    /// often, or when it is told to.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// How long after the last sign of life of a leader another process takes over, at least
    /// 2 s; 10 s if not said. It gives one three times as often.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long this process leads a duty before it lets another one have it, at least as long
    /// as its time to live; for as long as it lives if not said. While nobody else is there it
    /// goes on, and where somebody is, the duty changes hands without a pause.
    pub fn rotation(mut self, rotation: Duration) -> Self {
        self.rotation = Some(rotation);
        self
    }

    /// What people call this process, up to 200 bytes; `duties-` and the number of the
    /// process if not said.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Lets this process do a duty of its program, see
    /// [`WorkerBuilder::duty`](crate::WorkerBuilder::duty).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
    /// use std::time::Duration;
    /// use windlass::{DutyCtx, DutyOptions, TaskError, Windlass};
    ///
    /// let windlass = Windlass::memory();
    /// let (done, mut is_done) = tokio::sync::mpsc::channel(1);
    /// let hour = Duration::from_secs(3_600);
    /// let options = DutyOptions::default().duty("sweep", hour, move |ctx: DutyCtx| {
    ///     let done = done.clone();
    ///     async move { done.send(ctx.term().0).await.map_err(TaskError::new) }
    /// });
    /// let duties = windlass.duties(options)?;
    /// assert_eq!(is_done.recv().await, Some(1));
    /// duties.stop().await;
    /// assert_eq!(windlass.program_duties().await?[0].runs, 1);
    /// # Ok(()) }
    /// ```
    pub fn duty<F, Fut, E>(mut self, name: impl Into<String>, every: Duration, handler: F) -> Self
    where
        F: Fn(DutyCtx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.own.push(OwnDuty::new(name, every, handler));
        self
    }

    /// How long handlers of [duties](DutyOptions::duty) may go on once they are told that the
    /// process ends; 30 s if not said.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    pub(crate) fn own_settings(&self) -> OwnSettings {
        OwnSettings {
            ttl: self.ttl,
            grace: self.grace,
            spread_max: if self.is_led { SPREAD_MAX } else { Duration::ZERO },
            // Other numbers than those of the leader.
            seed: self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// The time to live that suits workers with this lease: a worker that dies and led is to
    /// be found dead as soon as any other.
    pub(crate) fn ttl_for(lease: Duration) -> Duration {
        (lease / 3 * 2).clamp(TTL_MIN, TTL)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |text| Err(Error::new(ErrorKind::Argument, text));
        if self.interval.is_zero() {
            return refuse("an interval of zero between duties would never pause".to_owned());
        }
        let rotation = self.rotation.unwrap_or(self.ttl);
        let times = [("interval", self.interval), ("ttl", self.ttl), ("rotation", rotation)];
        for (setting, time) in times {
            if time > SETTING_MAX {
                let text = format!("{setting} of duties is {time:?}, the limit is {SETTING_MAX:?}");
                return refuse(text);
            }
        }
        if self.ttl < TTL_MIN {
            let text = format!("ttl of duties is {:?}, the least is {TTL_MIN:?}", self.ttl);
            return refuse(text);
        }
        if rotation < self.ttl {
            let text = format!("rotation of duties is {rotation:?}, their ttl is {:?}", self.ttl);
            return refuse(text);
        }
        declare(&self.own, &self.own_settings())?;
        WorkerName::new(&self.name)?;
        Ok(())
    }
}

/// Does one duty once.
async fn sweep(duty: Duty, store: &dyn Store) -> Result<Sweep, StoreError> {
    match duty {
        Duty::PromoteDue => store.promote_due(duty.batch()).await,
        Duty::Reap => store.reap(duty.batch()).await,
        Duty::Prune => store.prune(duty.batch()).await,
        Duty::Schedules => store.fire_schedules(duty.batch()).await,
        // Whoever leads checks the promises; where nobody does, nobody does that.
        Duty::Rollup | Duty::Audit => store.roll_up(Duty::Rollup.batch()).await,
    }
}

/// The background duties of an engine and the [duties](DutyOptions::duty) of its program at work,
/// without a worker. Made by
/// [`Windlass::duties`](crate::Windlass::duties); dropped, it ends them. A sweep that is
/// under way is given up and left to whoever does the duties next.
#[derive(Debug)]
#[must_use = "the duties end when this is dropped"]
pub struct Duties {
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Duties {
    pub(crate) fn spawn(store: Arc<dyn Store>, options: DutyOptions) -> Self {
        let shutdown = CancellationToken::new();
        let own = run_own(
            (Arc::clone(&store), Gate::default()),
            options.name.clone(),
            options.own_settings(),
            options.own.clone(),
            shutdown.clone(),
        );
        let lead = run(store, options, shutdown.clone());
        let task = tokio::spawn(async {
            tokio::join!(lead, own);
        });
        Duties { task, stop: shutdown.drop_guard() }
    }

    /// Ends the duties and waits until they have, and until other processes may take over.
    pub async fn stop(self) {
        drop(self.stop);
        if self.task.await.is_err() {
            tracing::error!("a background duty panicked");
        }
    }
}

/// Does the duties that this process leads until `shutdown`, and then gives them up.
/// On a store whose server does them there is nothing to do.
pub(crate) async fn run(store: Arc<dyn Store>, options: DutyOptions, shutdown: CancellationToken) {
    if !store.does_duties() {
        return;
    }
    if !options.is_led {
        let each = |duty| repeat(duty, &*store, store.timer_hints(), options.interval);
        let all = [Duty::PromoteDue, Duty::Reap, Duty::Prune, Duty::Schedules, Duty::Rollup];
        let [promote, reap, prune, fire, roll_up] = all.map(each);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            _ = async { tokio::join!(promote, reap, prune, fire, roll_up) } => {}
        }
        return;
    }
    let mut leader = Leader::new(store, options);
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        never = leader.run() => match never {},
    }
    leader.resign().await;
}

/// Checks the duties of a program.
pub(crate) fn check_own(duties: &[OwnDuty], settings: &OwnSettings) -> Result<(), Error> {
    declare(duties, settings).map(drop)
}

/// Does the duties of a program, those of them that this process is given, until `shutdown`; then
/// lets their handlers come to their end.
pub(crate) async fn run_own(
    link: (Arc<dyn Store>, Gate),
    process: String,
    settings: OwnSettings,
    duties: Vec<OwnDuty>,
    shutdown: CancellationToken,
) {
    match declare(&duties, &settings) {
        Ok(declared) if declared.is_empty() => {}
        Ok(declared) => Roster::new(link, process, settings, declared).run(shutdown).await,
        // It was checked when the process was set up.
        Err(error) => tracing::error!(%error, "the duties of the program are not done"),
    }
}

/// Does one duty for ever, whoever else does. An error of the store is logged and waited out.
async fn repeat(duty: Duty, store: &dyn Store, mut hints: Hints, interval: Duration) {
    let mut backoff = Backoff::default();
    loop {
        hints.take();
        let pause = match sweep(duty, store).await {
            Ok(sweep) => {
                backoff.reset();
                // What is due at this very moment may already have been swept.
                sweep.next_at.map_or(interval, |at| at.since(sweep.at).min(interval))
            }
            Err(error) => {
                let pause = backoff.next_pause();
                tracing::warn!(%duty, %error, ?pause, "sweep failed");
                pause
            }
        };
        tokio::select! {
            biased;
            () = hints.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
