//! What goes wrong on the way to the store, and how often it did.

use std::fmt;
use std::time::Duration;

use crate::dice::Dice;

/// A kind of fault that is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A request never reaches the store.
    RequestLost,
    /// A request is applied and its answer lost.
    AnswerLost,
    /// A request is delivered twice, the second time late or early.
    DeliveredTwice,
    /// A request or its answer takes seconds.
    Slow,
    /// A request meets a store that is down.
    Outage,
    /// A process is cut off from the store for seconds.
    CutOff,
    /// A hint does not arrive.
    HintLost,
    /// A process is killed.
    Kill,
    /// A process dies after a random number of polls: at any await.
    Crash,
    /// A process stands still for a time.
    Freeze,
    /// A process is told to drain.
    Drain,
    /// A process starts that knows only some of the workflows or queues.
    PartialDeploy,
}

impl FaultKind {
    /// Every kind.
    pub(crate) const ALL: [FaultKind; 12] = [
        FaultKind::RequestLost,
        FaultKind::AnswerLost,
        FaultKind::DeliveredTwice,
        FaultKind::Slow,
        FaultKind::Outage,
        FaultKind::CutOff,
        FaultKind::HintLost,
        FaultKind::Kill,
        FaultKind::Crash,
        FaultKind::Freeze,
        FaultKind::Drain,
        FaultKind::PartialDeploy,
    ];

    /// The kind in words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            FaultKind::RequestLost => "request lost",
            FaultKind::AnswerLost => "answer lost",
            FaultKind::DeliveredTwice => "request delivered twice",
            FaultKind::Slow => "store slow for seconds",
            FaultKind::Outage => "request during an outage",
            FaultKind::CutOff => "process cut off",
            FaultKind::HintLost => "hint lost",
            FaultKind::Kill => "process killed",
            FaultKind::Crash => "process crashed at an await",
            FaultKind::Freeze => "process frozen",
            FaultKind::Drain => "process drained",
            FaultKind::PartialDeploy => "process with partial knowledge",
        }
    }
}

/// How often each kind of fault was injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultCounts([u64; FaultKind::ALL.len()]);

impl FaultCounts {
    /// Counts one fault.
    pub(crate) fn add(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// Adds the counts of another simulation.
    pub(crate) fn merge(&mut self, other: &FaultCounts) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in FaultKind::ALL {
            writeln!(f, "  {:<32}{:>12}", kind.words(), self.0[kind as usize])?;
        }
        Ok(())
    }
}

/// What a request asks for, as far as faults care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `join`
    Join,
    /// `claim`
    Claim,
    /// `finish`
    Finish,
    /// `release`
    Release,
    /// `checkpoint`
    Checkpoint,
    /// `record` or `take_signals`
    Record,
    /// `signal`
    Signal,
    /// `extend`
    Extend,
    /// `leave` or `begin_drain`
    Leave,
    /// `register`
    Register,
    /// `start_runs`
    Start,
    /// `lead`
    Lead,
    /// `resign`
    Resign,
    /// `sweep` or `promote_due`
    Promote,
    /// `sweep` or `reap`
    Reap,
    /// `cancel_run`
    Cancel,
    /// `retry_run`
    Retry,
    /// Everything that changes nothing.
    Read,
}

/// How bad the links of a scenario are.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultPlan {
    /// The share of requests that are lost.
    pub(crate) request_lost: f64,
    /// The share of answers that are lost.
    pub(crate) answer_lost: f64,
    /// The share of requests that are delivered twice.
    pub(crate) twice: f64,
    /// The share of requests that take seconds.
    pub(crate) slow: f64,
    /// The share of hints that are lost, for as long as the scenario lasts: nothing
    /// may depend on them.
    pub(crate) hints_lost: f64,
    /// A verb that is hit much more often than the others.
    pub(crate) focus: Option<Verb>,
    /// When the store is down: from, to.
    pub(crate) outages: Vec<(Duration, Duration)>,
}

/// By how much the probabilities grow for the verb in focus.
const FOCUS: f64 = 8.0;

impl FaultPlan {
    /// The links of a scenario.
    pub(crate) fn draw(dice: &mut Dice, horizon: Duration) -> Self {
        let hints_lost = dice.pick(&[0.0, 0.0, 0.3, 1.0]);
        if dice.chance(0.1) {
            return FaultPlan { hints_lost, ..FaultPlan::default() };
        }
        let focus = [Verb::Claim, Verb::Finish, Verb::Extend, Verb::Start, Verb::Retry, Verb::Lead];
        let mut outages = Vec::new();
        for _ in 0..dice.pick(&[0, 0, 0, 1, 2]) {
            let from = dice.up_to(horizon);
            outages.push((from, (from + dice.millis(500..=12_000)).min(horizon)));
        }
        FaultPlan {
            request_lost: dice.pick(&[0.0, 0.01, 0.05, 0.15]),
            answer_lost: dice.pick(&[0.0, 0.01, 0.05, 0.15]),
            twice: dice.pick(&[0.0, 0.01, 0.05, 0.15]),
            slow: dice.pick(&[0.0, 0.01, 0.03]),
            hints_lost,
            focus: dice.chance(0.4).then(|| dice.pick(&focus)),
            outages,
        }
    }

    /// What happens to one request.
    pub(crate) fn roll(&self, dice: &mut Dice, verb: Verb) -> Fate {
        let factor = if self.focus == Some(verb) { FOCUS } else { 1.0 };
        let mut fate = Fate::calm(dice);
        fate.is_request_lost = dice.chance((self.request_lost * factor).min(0.5));
        fate.is_answer_lost = dice.chance((self.answer_lost * factor).min(0.5));
        if verb != Verb::Read && dice.chance((self.twice * factor).min(0.5)) {
            let late = dice.pick(&[5, 100, 3_000, 15_000]);
            fate.copy_after = Some(dice.millis(0..=late));
        }
        if dice.chance(self.slow) {
            fate.before += dice.millis(500..=6_000);
        }
        if dice.chance(self.slow) {
            fate.after += dice.millis(500..=6_000);
        }
        fate
    }

    /// Whether the store is down.
    pub(crate) fn is_out(&self, at: Duration) -> bool {
        self.outages.iter().any(|(from, to)| *from <= at && at < *to)
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    /// How long it takes to the store.
    pub(crate) before: Duration,
    /// How long the answer takes back.
    pub(crate) after: Duration,
    /// The store never sees it.
    pub(crate) is_request_lost: bool,
    /// Whoever asked never sees the answer.
    pub(crate) is_answer_lost: bool,
    /// A copy of it reaches the store after this time.
    pub(crate) copy_after: Option<Duration>,
}

impl Fate {
    /// A request on a good day.
    pub(crate) fn calm(dice: &mut Dice) -> Self {
        let (before, after) = (dice.pick(&[0, 1, 1, 2]), dice.pick(&[0, 0, 1, 2]));
        Fate {
            before: Duration::from_millis(before),
            after: Duration::from_millis(after),
            ..Fate::default()
        }
    }
}
