//! Crashes at every place of a workflow.

mod places;
#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use windlass_core::{Payload, PayloadLimit, RunId, RunState, TaskState};

use self::places::PLACES_MAX;
pub(super) use self::places::{CrashLink, CrashProbe, Places};
pub use self::places::{CrashPlace, LinkCall};
use super::TestEngine;
use crate::run::RunHandle;
use crate::workflow::{Registration, Workflow};

/// The id of the run in every trial, so that what follows from it
/// ([`Ctx::random`](crate::Ctx::random), ids of children) is the same in each.
const RUN: RunId =
    RunId::from_uuid(uuid::Uuid::from_u128(0x019b_76da_a800_7000_8000_c0de_c0de_c0de));

/// The seed of the jitter in pauses, which is the same in each trial for the same reason.
const SEED: u64 = 1;

/// Runs a workflow once as it is, and then once for every place where its worker could die,
/// with the worker killed there and replaced; each time on a new [`TestEngine`], in virtual
/// time. Await it.
///
/// The places are both sides of the commit of every claim, record of steps, taken signal,
/// start of a child, checkpoint, hand-back and finish (the request never arrives, or it is
/// applied and the answer never comes), and every [`Point`](super::Point).
///
/// Each trial must end like the first one: the same runs, the same states of their tasks, the
/// same outputs. No recorded result of a step may be missing afterwards, and the promises
/// of [`invariants`](super::invariants) must be kept. How often an effect happened, only the
/// handlers know: let them count in something that they share with the test, and look at it
/// [after each](CrashEverywhere::after_each) trial.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
/// use std::sync::Mutex;
/// use windlass::testing::{CrashPlace, LinkCall, crash_everywhere};
/// use windlass::{Ctx, Function, TaskError};
///
/// /// What happened outside of Windlass.
/// static EFFECTS: Mutex<Vec<&str>> = Mutex::new(Vec::new());
///
/// async fn order(ctx: Ctx<u32>) -> Result<u32, TaskError> {
///     let mut total = 0;
///     for name in ["reserve", "charge", "ship"] {
///         let step = ctx.step(name, async || {
///             EFFECTS.lock().unwrap().push(name);
///             Ok::<_, TaskError>(*ctx.input())
///         });
///         total += step.await?;
///     }
///     Ok(total)
/// }
///
/// let order = Function::new("order", order)?;
/// // One line is enough:
/// let report = crash_everywhere(&order, 7).await;
/// assert!(report.places().len() > 10);
///
/// // With a look at the effects: each happened, and only the one whose record was not
/// // committed when the worker died happened twice.
/// crash_everywhere(&order, 7)
///     .before_each(|| EFFECTS.lock().unwrap().clear())
///     .after_each(|place| {
///         let effects = EFFECTS.lock().unwrap();
///         for name in ["reserve", "charge", "ship"] {
///             let is_unrecorded = matches!(
///                 place,
///                 Some(CrashPlace::Call { call: LinkCall::Record, names, is_applied: false })
///                     if names.contains(&format!("{name:?}"))
///             );
///             let times = if is_unrecorded { 2 } else { 1 };
///             assert_eq!(effects.iter().filter(|effect| **effect == name).count(), times);
///         }
///     })
///     .await;
/// # Ok(()) }
/// ```
///
/// # Panics
///
/// If a trial ends otherwise than the first one, with the place and both endings; if it does
/// not end; if it does not come to the place at which it should be disturbed, as a workflow
/// does that decides by chance or by what earlier trials left behind; if there are more
/// than 20,000 places. And as [`TestEngine::new`] does.
pub fn crash_everywhere<'a, I: Serialize>(workflow: &Workflow<I>, input: I) -> CrashEverywhere<'a> {
    let input = PayloadLimit::default().encode(&input).unwrap_or_else(|error| {
        panic!("input of workflow {:?} {error}", workflow.name());
    });
    CrashEverywhere {
        workflow: workflow.registration(),
        others: Vec::new(),
        input,
        drive: None,
        before_each: Box::new(|| {}),
        after_each: Box::new(|_| {}),
        #[cfg(test)]
        drops_records: false,
    }
}

/// What happens from outside in a trial, behind a type that does not name the closure.
trait Drive {
    fn drive<'d>(
        &'d self,
        test: &'d TestEngine,
        run: &'d RunHandle,
    ) -> Pin<Box<dyn Future<Output = ()> + 'd>>;
}

impl<D: AsyncFn(&TestEngine, &RunHandle)> Drive for D {
    fn drive<'d>(
        &'d self,
        test: &'d TestEngine,
        run: &'d RunHandle,
    ) -> Pin<Box<dyn Future<Output = ()> + 'd>> {
        Box::pin(self(test, run))
    }
}

type Check<'a> = Box<dyn FnMut(Option<&CrashPlace>) + 'a>;

/// Trials of a workflow that are set up by [`crash_everywhere`], to be awaited.
#[must_use = "nothing is tried unless it is awaited"]
pub struct CrashEverywhere<'a> {
    workflow: Registration,
    others: Vec<Registration>,
    input: Payload,
    drive: Option<Box<dyn Drive + 'a>>,
    before_each: Box<dyn FnMut() + 'a>,
    after_each: Check<'a>,
    #[cfg(test)]
    drops_records: bool,
}

impl<'a> CrashEverywhere<'a> {
    /// Lets the workers run another workflow too, such as one whose runs this one starts.
    pub fn register<I>(mut self, workflow: &Workflow<I>) -> Self {
        self.others.push(workflow.registration());
        self
    }

    /// What happens from outside in each trial once the run is started, such as signals.
    /// Afterwards time passes until every run has ended.
    ///
    /// A trial with a crash takes longer than the first one, by the lease of the dead worker:
    /// what depends on how far the run is should look at the run, not at the clock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
    /// # use windlass::testing::crash_everywhere;
    /// # use windlass::{Ctx, Function, TaskError};
    /// let approve = Function::new("approve", async |ctx: Ctx<()>| {
    ///     ctx.signal::<bool>("verdict").await
    /// })?;
    /// crash_everywhere(&approve, ())
    ///     .drive(async |_, run| run.signal("verdict", &true).await.unwrap())
    ///     .await;
    /// # Ok(()) }
    /// ```
    pub fn drive<D>(mut self, drive: D) -> Self
    where
        D: AsyncFn(&TestEngine, &RunHandle) + 'a,
    {
        self.drive = Some(Box::new(drive));
        self
    }

    /// Called before each trial, to reset what handlers share: the same handlers serve all
    /// trials.
    pub fn before_each(mut self, reset: impl FnMut() + 'a) -> Self {
        self.before_each = Box::new(reset);
        self
    }

    /// Called when a trial has ended well, with the place where its worker died; `None` for the
    /// first one, which is not disturbed.
    pub fn after_each(mut self, check: impl FnMut(Option<&CrashPlace>) + 'a) -> Self {
        self.after_each = Box::new(check);
        self
    }

    /// Plants a bug: records of steps are accepted and dropped.
    #[cfg(test)]
    fn dropping_records(mut self) -> Self {
        self.drops_records = true;
        self
    }

    async fn run(mut self) -> CrashReport {
        let (places, first) = self.trial(None).await;
        let count = places.len();
        let name = self.workflow.definition.name().clone();
        assert!(
            count <= PLACES_MAX,
            "workflow {name:?} has more than {PLACES_MAX} places to crash at: try a smaller input"
        );
        (self.after_each)(None);
        for (number, place) in places.iter().enumerate() {
            let at = format!("{place} (place {} of {count} of workflow {name:?})", number + 1);
            let _context = Context(&at);
            let (seen, ending) = self.trial(Some(number)).await;
            assert!(
                seen.get(number) == Some(place),
                "no worker came to die {at}; does the workflow decide by chance, or by what \
                 earlier trials left behind? (see `before_each`)"
            );
            assert!(
                ending.lines == first.lines,
                "when a worker dies {at}, it ends otherwise\nundisturbed:\n{first}\n\
                 with the crash:\n{ending}"
            );
            (self.after_each)(Some(place));
        }
        CrashReport { places, state: first.state }
    }

    /// One run of the workflow, with a crash at the place of this number.
    async fn trial(&mut self, crash_at: Option<usize>) -> (Vec<CrashPlace>, Ending) {
        fastrand::seed(SEED);
        (self.before_each)();
        let places = Arc::new(Places::new(crash_at));
        #[cfg(test)]
        if self.drops_records {
            places.drop_records();
        }
        let test = TestEngine::new().registration(self.workflow.clone());
        let test = self.others.iter().cloned().fold(test, TestEngine::registration);
        let test = test.dying_at(Arc::clone(&places));
        let start =
            test.windlass().start_encoded(&self.workflow.definition, Ok(self.input.clone()));
        let run = start.id(RUN).await.unwrap_or_else(|error| panic!("cannot be started: {error}"));
        let driven = async {
            if let Some(drive) = &self.drive {
                drive.drive(&test, &run).await;
            }
            test.run_until_ended().await;
        };
        let replaced = async {
            places.died().await;
            test.employ();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = replaced => {}
            () = driven => {}
        }
        test.assert_promises_kept().await;
        let lost = places.lost();
        assert!(lost.is_empty(), "the store lost what it had accepted: {}", lost.join(", "));
        let ending = Ending::of(&test, &run).await;
        (places.seen(), ending)
    }
}

impl<'a> IntoFuture for CrashEverywhere<'a> {
    type Output = CrashReport;
    type IntoFuture = Pin<Box<dyn Future<Output = CrashReport> + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for CrashEverywhere<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashEverywhere").field("workflow", &self.workflow).finish_non_exhaustive()
    }
}

/// What [`crash_everywhere`] tried. Every trial ended like the first one.
#[derive(Clone, Debug)]
pub struct CrashReport {
    places: Vec<CrashPlace>,
    state: RunState,
}

impl CrashReport {
    /// The places where a worker died, one in each trial, in the order of the first trial.
    pub fn places(&self) -> &[CrashPlace] {
        &self.places
    }

    /// How the run ended, in every trial.
    pub fn state(&self) -> RunState {
        self.state
    }
}

/// How a trial ended: every run with the states and outputs of its tasks.
struct Ending {
    state: RunState,
    lines: Vec<String>,
}

impl Ending {
    async fn of(test: &TestEngine, run: &RunHandle) -> Self {
        let mut runs = Vec::new();
        for run in test.all_runs().await {
            let record = run.get().await.expect("a listed run exists");
            let (workflow, state) = (&record.workflow, record.state);
            let input = record.input.as_ref().expect("a run that is read alone has its input");
            let input = input.as_str();
            let mut text = format!("  run of {workflow:?} with {input}: {state}");
            for task in run.tasks().await.expect("a store in memory answers") {
                text.push_str(&format!("\n    {}: {}", task.name, task.state));
                match (&task.output, &task.failure) {
                    (Some(output), _) => text.push_str(&format!(" with {}", output.as_str())),
                    // An attempt that failed before is no part of the ending.
                    (None, Some(failure)) if task.state == TaskState::Failed => {
                        text.push_str(&format!(" with {failure}"));
                    }
                    (None, _) => {}
                }
            }
            runs.push(text);
        }
        runs.sort();
        let record = run.get().await.expect("the run was started");
        Ending { state: record.state, lines: runs }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

/// Says where the worker died if anything panics, such as what the test drives or checks.
struct Context<'a>(&'a str);

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("crash_everywhere: the worker died {}", self.0);
        }
    }
}
