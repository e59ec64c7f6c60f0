//! Deliberate bugs, for the simulation to catch.
//!
//! A simulation that finds nothing proves nothing unless it is seen to find what
//! is there. Each bug here is a mistake that engines of this kind have shipped.
//! Without the feature `planted-bugs` every question below is `false` at compile
//! time and no bug can be chosen.

/// A mistake that can be planted.
#[cfg_attr(not(feature = "planted-bugs"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlantedBug {
    /// A finish is accepted from whoever sends it while the task is running.
    FinishWithoutFence,
    /// A claim takes the task off its queue in one step and marks it in another.
    ClaimInTwoSteps,
    /// The descendants of a failed task are not settled.
    FailureWithoutCascade,
    /// The reaper fails a task without settling its descendants.
    ReapWithoutCascade,
    /// A heartbeat keeps the lease of whoever has the task now, dead workers'
    /// heartbeats included.
    HeartbeatWithoutFence,
    /// Tasks of a claim whose answer was lost stay with the worker for ever.
    LostClaimsForgotten,
    /// The pause before a retry lives in the worker's memory.
    BackoffInMemory,
    /// A worker that never sent a heartbeat never expires.
    FirstHeartbeatNeverExpires,
    /// The reaper requeues a task whose attempts are used up.
    ReapWithoutAttemptLimit,
    /// A hand-back costs an attempt.
    ReleaseCostsAttempt,
    /// Retrying a run starts the fences anew.
    RetryResetsFence,
    /// Timers fire a little early.
    EarlyTimers,
    /// A timer is consumed in one step and takes effect in another.
    TimerConsumedEffectLost,
    /// A tenant's turn is computed from the largest tag that waits.
    TagFromUnclaimedMaximum,
    /// A repeated finish is counted again.
    RepeatedFinishCounts,
    /// A task becomes ready when its first parent has ended.
    ReadyAfterFirstParent,
    /// Cancelling a run forgets its timers.
    CancelForgetsTimers,
    /// A draining worker stops its heartbeat before its tasks have ended.
    DrainStopsHeartbeat,
    /// A draining worker goes on claiming.
    DrainKeepsClaiming,
    /// A worker looks for tasks only when it is hinted to.
    HintsWithoutPolling,
    /// Claims keep the lease, also of tasks the worker does not know of.
    ClaimsKeepLease,
    /// Two starts with one idempotency key make two runs.
    KeysNotUnique,
    /// A worker claims for all its slots, not for the free ones.
    ClaimsOverSlots,
    /// Whoever once led a duty goes on doing it.
    SweepWithoutTerm,
    /// A step is recorded by whoever says to run its function.
    RecordWithoutFence,
    /// A function is parked by an attempt that was outlived.
    ParkWithoutFence,
    /// A signal is taken off in one step and recorded in another.
    TakeInTwoSteps,
    /// A signal that comes between the look for it and the park is not noticed.
    SignalMissedAtPark,
    /// The end of a child before its parent is parked is forgotten.
    ChildMissedAtPark,
    /// A wait that is recorded once more is measured from then.
    WaitBegunAnew,
    /// A function that goes on, whatever for, takes its sleeps for over.
    WokenSleepsAreOver,
    /// Results are replayed in the order of their calls, not in the one they came in.
    ResultsByCall,
    /// A call that is made once more in the next round finds the child of the last.
    RetriedChildReused,
    /// The children of a cancelled run go on.
    CancelForgetsChildren,
    /// A run ends in one step, and what undoes it begins in another.
    UndoInAnotherStep,
    /// Steps are undone in the order in which they were done.
    UndoInOrder,
    /// A function that begins afresh finds the steps of the round before.
    StepsKeptWhenContinued,
    /// A signal to a key that comes between the look for it and the park is not noticed.
    KeySignalMissedAtPark,
    /// A signal to a key stays in its mailbox when it is taken.
    KeySignalTakenTwice,
    /// Of those who wait for a signal to a key, one is told.
    KeySignalTellsOne,
    /// A task that was claimed in time fails when the time for its claim is over.
    ClaimTimeoutOfClaimed,
    /// A run that is retried may take as long as it likes.
    RetryForgetsDeadline,
    /// A task that ends gives its slots up twice.
    SlotReleasedTwice,
    /// The numbers of limits are forgotten while a task ends, as if another connection was lost:
    /// it releases no slot.
    LimitForgottenWhileFinishing,
    /// A task that is cancelled keeps its slots.
    CancelKeepsSlots,
    /// Whether a lane is full is looked up before it is locked, a moment too early.
    LaneCheckedWithoutLock,
    /// Who waits in a lane is let go on in the order of task ids.
    LaneByTaskId,
    /// Whoever has waited for a token takes one that is not counted.
    TokenNotCounted,
    /// The bucket of a rate fills twice as fast as was said.
    TokensRefilledTwice,
    /// Of those that come soon behind each other, the first goes on.
    DebounceKeepsFirst,
    /// A breaker counts failures and never opens.
    BreakerNeverOpens,
    /// A breaker stays open when the one that tries succeeds.
    BreakerNeverCloses,
    /// Two try at once whether a breaker may close.
    ProbeLetsTwoThrough,
    /// A run whose place others have goes on if it is under way.
    SupersededStillRuns,
    /// A task that failed gives its slots up although it halts its stream.
    HaltedStreamGoesOn,
    /// A task that is redriven gives up the slots that it kept.
    RedriveLosesPlace,
    /// A dead letter is discarded, and its stream stays halted.
    DiscardKeepsSlots,
    /// A schedule starts a run in one step and moves on in another, and the run has any id.
    FireInTwoSteps,
    /// A schedule that is late goes on with the next time from now.
    FireSkipsToNow,
    /// The next time of a schedule is an interval after it was served.
    FireDrifts,
    /// A duty is given to whoever asks while another is at it.
    DutyClaimedTwice,
    /// A duty is ended by whoever once was at it.
    DutyEndedWithoutTerm,
    /// The next time of a duty is an interval after its handler ended.
    DutyDrifts,
}

#[cfg(feature = "planted-bugs")]
impl PlantedBug {
    /// Every bug.
    pub const ALL: [PlantedBug; 63] = [
        PlantedBug::FinishWithoutFence,
        PlantedBug::ClaimInTwoSteps,
        PlantedBug::FailureWithoutCascade,
        PlantedBug::ReapWithoutCascade,
        PlantedBug::HeartbeatWithoutFence,
        PlantedBug::LostClaimsForgotten,
        PlantedBug::BackoffInMemory,
        PlantedBug::FirstHeartbeatNeverExpires,
        PlantedBug::ReapWithoutAttemptLimit,
        PlantedBug::ReleaseCostsAttempt,
        PlantedBug::RetryResetsFence,
        PlantedBug::EarlyTimers,
        PlantedBug::TimerConsumedEffectLost,
        PlantedBug::TagFromUnclaimedMaximum,
        PlantedBug::RepeatedFinishCounts,
        PlantedBug::ReadyAfterFirstParent,
        PlantedBug::CancelForgetsTimers,
        PlantedBug::DrainStopsHeartbeat,
        PlantedBug::DrainKeepsClaiming,
        PlantedBug::HintsWithoutPolling,
        PlantedBug::ClaimsKeepLease,
        PlantedBug::KeysNotUnique,
        PlantedBug::ClaimsOverSlots,
        PlantedBug::SweepWithoutTerm,
        PlantedBug::RecordWithoutFence,
        PlantedBug::ParkWithoutFence,
        PlantedBug::TakeInTwoSteps,
        PlantedBug::SignalMissedAtPark,
        PlantedBug::ChildMissedAtPark,
        PlantedBug::WaitBegunAnew,
        PlantedBug::WokenSleepsAreOver,
        PlantedBug::ResultsByCall,
        PlantedBug::RetriedChildReused,
        PlantedBug::CancelForgetsChildren,
        PlantedBug::UndoInAnotherStep,
        PlantedBug::UndoInOrder,
        PlantedBug::StepsKeptWhenContinued,
        PlantedBug::KeySignalMissedAtPark,
        PlantedBug::KeySignalTakenTwice,
        PlantedBug::KeySignalTellsOne,
        PlantedBug::ClaimTimeoutOfClaimed,
        PlantedBug::RetryForgetsDeadline,
        PlantedBug::SlotReleasedTwice,
        PlantedBug::LimitForgottenWhileFinishing,
        PlantedBug::CancelKeepsSlots,
        PlantedBug::LaneCheckedWithoutLock,
        PlantedBug::LaneByTaskId,
        PlantedBug::TokenNotCounted,
        PlantedBug::TokensRefilledTwice,
        PlantedBug::DebounceKeepsFirst,
        PlantedBug::BreakerNeverOpens,
        PlantedBug::BreakerNeverCloses,
        PlantedBug::ProbeLetsTwoThrough,
        PlantedBug::SupersededStillRuns,
        PlantedBug::HaltedStreamGoesOn,
        PlantedBug::RedriveLosesPlace,
        PlantedBug::DiscardKeepsSlots,
        PlantedBug::FireInTwoSteps,
        PlantedBug::FireSkipsToNow,
        PlantedBug::FireDrifts,
        PlantedBug::DutyClaimedTwice,
        PlantedBug::DutyEndedWithoutTerm,
        PlantedBug::DutyDrifts,
    ];
}

/// The bug that is planted, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted-bugs")]
    bug: Option<PlantedBug>,
}

impl Planted {
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn new(bug: Option<PlantedBug>) -> Self {
        Planted { bug }
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn has(self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn has(self, _bug: PlantedBug) -> bool {
        false
    }
}
