//! The loop of a worker.
//!
//! One future owns all of a worker's state and has at most one claim, one flush
//! and one heartbeat under way. Handlers run in tokio tasks of their own, so one
//! that computes for long does not hold up the heartbeat.

mod claims;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use windlass_core::{ClaimSeq, Outcome, WorkerId, decide};

use self::claims::CLAIM_MAX;
use super::call::{Call, answer, limited};
use super::drain::Drain;
use super::held::{HeldTask, HeldTasks};
use super::outbox::{Flushed, Outbox};
use super::refusals::Refusals;
use super::{Config, Gathers, Parts, attempt};
use crate::backoff::Backoff;
use crate::context::Attempt;
use crate::error::Error;
use crate::planted::PlantedBug;
use crate::spans;
use crate::store::{
    Claimed, Completion, Finished, HandlerKey, Heartbeat, HeartbeatAnswer, Held, Hello, Hints,
    ProgressNote, Release, StoreError,
};
use crate::workflow::Registration;

/// How often a worker without tasks sends a heartbeat: three are lost before it counts as silent
/// ([`SILENT_MAX`](windlass_core::why::SILENT_MAX) after its lease), and a drain from outside is heard
/// of within this time.
const IDLE_BEAT: Duration = Duration::from_secs(20);

/// How long a task is put off that this worker should know and does not.
const UNKNOWN_TASK_DELAY: Duration = Duration::from_secs(5);

/// How long a task is put off that its handler gave back while the worker was not draining.
const HAND_BACK_DELAY: Duration = Duration::from_secs(1);

/// How long a drain may take to tell the store how a handler ended that had to be
/// dropped, and again to say goodbye: at most this, and a tenth of the grace period.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// A worker at work.
pub(crate) struct Session {
    parts: Parts,
    config: Config,
    rng: fastrand::Rng,
    worker: WorkerId,
    handlers: Arc<[HandlerKey]>,
    /// Whether tasks that it has handlers for go to the owner of their key.
    is_owner: bool,
    draining: CancellationToken,

    held: HeldTasks,
    running: JoinSet<Option<Outcome>>,
    by_id: HashMap<Id, Held>,
    outbox: Outbox,
    gathers: Arc<Gathers>,

    hints: Hints,
    claim: Call<Result<Vec<Claimed>, StoreError>>,
    claim_began: Instant,
    /// The claim that a flush carries.
    carried: Option<ClaimSeq>,
    claim_seq: ClaimSeq,
    settled: ClaimSeq,
    claim_limit: usize,
    /// The most tasks of a claim: half of those of the last one if it failed, since it may
    /// have been too much for the time it had.
    claim_max: usize,
    look_at: Instant,
    /// Whether the next claim expects nothing.
    is_polling: bool,
    /// How long the last pause was that a claim which found too little was followed by.
    poll_pause: Duration,
    claim_backoff: Backoff,
    /// What claims and heartbeats were refused for.
    claim_refusals: Refusals,
    beat_refusals: Refusals,

    /// What tells others that this worker drains.
    drain_note: Call<Result<(), StoreError>>,
    /// When a worker without tasks says that it lives.
    sign_at: Instant,

    beat: Call<Result<HeartbeatAnswer, StoreError>>,
    beat_began: Instant,
    beat_at: Instant,
    beat_settles: ClaimSeq,
    beat_notes: Vec<ProgressNote>,
    /// The answer to this claim was lost: only a heartbeat can tell the store.
    lost_claim: Option<ClaimSeq>,
    /// Until then the lease is surely held. When it passes without a sign from the
    /// store, the handlers are told: their tasks may be others' by now.
    lease_until: Instant,
    has_lapsed: bool,
}

impl Session {
    pub(crate) fn new(parts: Parts, config: Config, draining: CancellationToken) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let worker = WorkerId::from_random(rng.u128(..));
        let hints = parts.link.work_hints();
        let handlers = parts.registrations.keys().cloned().collect();
        let is_owner = parts
            .registrations
            .values()
            .any(|one| one.definition.tasks().iter().any(|it| it.is_owned()));
        let now = Instant::now();
        let gathers = Gathers::new(&parts.link, &parts.gate, config.lease / 3);
        let sign_at = now + IDLE_BEAT;
        Session {
            gathers,
            parts,
            config,
            rng,
            worker,
            handlers,
            is_owner,
            draining,
            held: HeldTasks::default(),
            running: JoinSet::new(),
            by_id: HashMap::new(),
            outbox: Outbox::new(now),
            hints,
            claim: None,
            claim_began: now,
            carried: None,
            claim_seq: ClaimSeq(0),
            settled: ClaimSeq(0),
            claim_limit: 0,
            claim_max: CLAIM_MAX,
            look_at: now,
            is_polling: false,
            poll_pause: Duration::ZERO,
            claim_backoff: Backoff::default(),
            claim_refusals: Refusals::default(),
            beat_refusals: Refusals::default(),
            drain_note: None,
            sign_at,
            beat: None,
            beat_began: now,
            beat_at: now,
            beat_settles: ClaimSeq(0),
            beat_notes: Vec::new(),
            lost_claim: None,
            lease_until: now,
            has_lapsed: false,
        }
    }

    /// Works until it is drained: no more claims, every task ended or handed back.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        if !self.join().await? {
            return Ok(());
        }
        let mut drain: Option<Drain> = None;
        let end_at = loop {
            let now = Instant::now();
            self.parts.pulse.turn(self.held.len());
            if drain.is_none() && self.draining.is_cancelled() {
                drain = Some(self.begin_drain(now));
            }
            if let Some(drain) = &drain {
                if now >= drain.interrupt_at {
                    self.held.cancel_all();
                }
                if self.is_done() || now >= drain.give_up_at {
                    break drain.end_at;
                }
            }
            self.notice_lapse(now);
            self.begin_calls(now, drain.is_some());
            let wake_at = self.wake_at(drain.as_ref(), now);
            let Some(error) = self.wait(drain.is_some(), wake_at).await else { continue };
            if drain.is_some() {
                // Not worth a new life: what is left ends, within the grace period. Only
                // a lost lease concerns the tasks whose outcome was not refused.
                tracing::error!(worker = %self.worker, %error, "while draining");
                if let StoreError::LeaseLost(_) = error {
                    self.lose(&error);
                }
            } else if !self.rejoin(&error).await? {
                return Ok(());
            }
        };
        self.leave(end_at).await;
        Ok(())
    }

    /// Says goodbye. The lease would run out anyway; this only spares the others the
    /// wait.
    async fn leave(self, end_at: Instant) {
        let soon = Instant::now() + REPORT_TIME;
        match timeout_at(end_at.min(soon), self.parts.link.leave(self.worker)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "could not leave"),
            Err(_) => tracing::warn!("could not leave in time"),
        }
    }

    /// Introduces the worker; `false` if it was drained before that succeeded. One that is refused
    /// for what it says it is goes on asking: someone may mend its token.
    async fn join(&mut self) -> Result<bool, Error> {
        let definitions = self.parts.registrations.values().filter(|one| !one.definition.is_undo());
        let mut hello = Hello {
            worker: self.worker,
            name: self.config.name.clone(),
            slots: u32::try_from(self.config.slots).unwrap_or(u32::MAX),
            lease: self.config.lease,
            definitions: definitions.map(|r| Arc::clone(&r.definition)).collect(),
            info: self.config.info.clone(),
        };
        let (mut backoff, mut refusals) = (Backoff::default(), Refusals::default());
        self.parts.pulse.joins();
        loop {
            self.parts.pulse.turn(self.held.len());
            let link = Arc::clone(&self.parts.link);
            let request = hello.clone();
            let call = limited(self.call_limit(), async move { link.join(request).await });
            let answer = tokio::select! {
                biased;
                () = self.draining.cancelled() => return Ok(false),
                answer = call => answer,
            };
            self.parts.pulse.heard(&answer);
            let pause = match answer {
                Ok(()) => {
                    self.parts.pulse.joined(self.worker);
                    return Ok(true);
                }
                Err(StoreError::LeaseLost(_)) => {
                    // An earlier introduction came through, and was forgotten since.
                    self.worker = WorkerId::from_random(self.rng.u128(..));
                    hello.worker = self.worker;
                    Duration::ZERO
                }
                Err(error) if !error.may_pass() => return Err(error.into()),
                Err(error) => {
                    let pause = backoff.next_pause();
                    match (error.is_refusal(), refusals.is_old(&error)) {
                        (false, _) => tracing::warn!(%error, ?pause, "could not join"),
                        (true, false) => tracing::error!(%error, "refused; it goes on asking"),
                        (true, true) => tracing::debug!(%error, ?pause, "refused again"),
                    }
                    pause
                }
            };
            tokio::select! {
                biased;
                () = self.draining.cancelled() => return Ok(false),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// How long a call to the link may take. Two heartbeats fit into a lease even if
    /// the first one hangs.
    fn call_limit(&self) -> Duration {
        self.config.lease / 3
    }

    /// The lease is lost: the tasks are others' now, and their handlers are told. A
    /// claim or heartbeat that is under way is of no interest any more.
    fn lose(&mut self, error: &StoreError) {
        tracing::warn!(worker = %self.worker, %error, "lost the lease");
        self.held.lose_all();
        self.claim = None;
        self.carried = None;
        self.beat = None;
        self.beat_notes.clear();
        self.lost_claim = None;
        self.settled = self.claim_seq;
    }

    /// Begins a new life after the lease was lost.
    async fn rejoin(&mut self, error: &StoreError) -> Result<bool, Error> {
        self.lose(error);
        self.worker = WorkerId::from_random(self.rng.u128(..));
        self.look_at = Instant::now();
        self.join().await
    }

    fn begin_drain(&mut self, now: Instant) -> Drain {
        tracing::info!(worker = %self.worker, running = self.running.len(), "draining");
        if !self.running.is_empty() {
            self.say_that_it_drains(Duration::ZERO);
        }
        let Config { grace, cancel_grace, .. } = self.config;
        let report_time = REPORT_TIME.min(grace / 10);
        let give_up = grace - report_time;
        // Handlers that are dropped are reported: their leases must not run out.
        let interrupt = give_up.saturating_sub(cancel_grace + report_time);
        Drain { interrupt_at: now + interrupt, give_up_at: now + give_up, end_at: now + grace }
    }

    /// Tells others that this worker drains: what goes to the owner of its key waits for that.
    fn say_that_it_drains(&mut self, pause: Duration) {
        let (link, worker) = (Arc::clone(&self.parts.link), self.worker);
        let note = async move {
            tokio::time::sleep(pause).await;
            link.begin_drain(worker).await
        };
        self.drain_note = Some(limited(pause + self.call_limit(), note));
    }

    fn is_done(&self) -> bool {
        !self.is_claiming()
            && self.running.is_empty()
            && self.outbox.is_done()
            && self.lost_claim.is_none()
    }

    fn has_room(&self) -> bool {
        self.running.len() < self.config.slots && !self.outbox.is_full()
    }

    fn needs_beat(&self) -> bool {
        // Whoever owns keys is to be known as alive while it has nothing to do.
        let is_owner = self.is_owner && !self.draining.is_cancelled();
        self.lost_claim.is_some() || !self.held.is_empty() || is_owner
    }

    /// Tells the handlers when the lease may have run out: the store did not answer
    /// for so long that their tasks may be others'. What they still return is sent,
    /// for the fence to judge.
    fn notice_lapse(&mut self, now: Instant) {
        if now >= self.lease_until && !self.held.is_empty() && !self.has_lapsed {
            tracing::warn!(worker = %self.worker, "cut off from the store for a lease");
            self.has_lapsed = true;
            self.held.cancel_all();
        }
    }

    /// The store answered a call that began at `began` and keeps the lease.
    fn renew(&mut self, began: Instant) {
        self.lease_until = self.lease_until.max(began + self.config.lease);
        self.has_lapsed = false;
    }

    /// Begins whatever is due and not under way.
    fn begin_calls(&mut self, now: Instant, is_draining: bool) {
        let keeps_claiming = self.parts.planted.has(PlantedBug::DrainKeepsClaiming);
        let may_claim = !is_draining || (keeps_claiming && !self.held.is_empty());
        let may_claim = may_claim && !self.is_claiming() && self.has_room();
        if may_claim && now >= self.look_at {
            self.begin_claim(now);
        }
        let next = (may_claim && !self.is_claiming() && self.leads_on(now)).then(|| {
            let next = self.next_claim();
            self.carried = Some(next.seq);
            next
        });
        self.outbox.begin(now, &self.parts, &self.held, self.call_limit(), next);
        let stops_beating = is_draining && self.parts.planted.has(PlantedBug::DrainStopsHeartbeat);
        let is_beat_due = self.needs_beat() && now >= self.beat_at || now >= self.sign_at;
        if self.beat.is_none() && is_beat_due && !stops_beating {
            self.begin_beat(now);
        }
    }

    fn begin_beat(&mut self, now: Instant) {
        self.beat_began = now;
        self.beat_at = now + self.config.lease / 3;
        self.sign_at = now + IDLE_BEAT;
        self.beat_settles = self.settled;
        self.beat_notes = self.held.take_progress();
        let heartbeat = Heartbeat {
            worker: self.worker,
            settled: self.settled,
            held: self.held.list(),
            progress: self.beat_notes.clone(),
        };
        let link = Arc::clone(&self.parts.link);
        self.beat = Some(limited(self.call_limit(), async move { link.extend(heartbeat).await }));
    }

    /// When the loop must look again even if nothing happens.
    fn wake_at(&self, drain: Option<&Drain>, now: Instant) -> Option<Instant> {
        let look = drain.is_none() && !self.is_claiming() && self.has_room();
        let times = [
            look.then_some(self.look_at),
            (!self.outbox.is_flushing() && self.outbox.has_parcels())
                .then_some(self.outbox.flush_at),
            (self.beat.is_none() && self.needs_beat()).then_some(self.beat_at),
            self.beat.is_none().then_some(self.sign_at),
            (!self.held.is_empty() && !self.has_lapsed).then_some(self.lease_until),
            drain.map(|drain| drain.next_at(now)),
            self.parts.pulse.is_watched().then_some(now + self.config.lease),
        ];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }

    /// Waits for one thing to happen and reacts to it. The error is that of a lost
    /// lease.
    async fn wait(&mut self, is_draining: bool, wake_at: Option<Instant>) -> Option<StoreError> {
        let awaits_hint = !is_draining && !self.is_claiming() && self.has_room();
        tokio::select! {
            biased;
            () = self.draining.cancelled(), if !is_draining => None,
            Flushed { batch, answers, next } = self.outbox.answers() => {
                self.parts.pulse.heard(&answers);
                let (answers, claimed) = match answers {
                    Ok(Finished { answers, claimed }) => (Ok(answers), Some(claimed)),
                    Err(error) => (Err(error), None),
                };
                let jitter = self.rng.f64();
                let settled = self.outbox.settle(batch, answers, &mut self.held, jitter);
                if let Some(next) = next {
                    self.on_carried(next, claimed, is_draining);
                }
                settled.err()
            }
            Some(ended) = self.running.join_next_with_id() => {
                self.on_ended(ended);
                // What else has ended goes with it.
                while let Some(ended) = self.running.try_join_next_with_id() {
                    self.on_ended(ended);
                }
                None
            }
            claimed = answer(&mut self.claim) => {
                self.claim = None;
                self.parts.pulse.heard(&claimed);
                self.on_claimed(claimed, is_draining)
            }
            answer = answer(&mut self.beat) => {
                self.beat = None;
                self.parts.pulse.heard(&answer);
                self.on_beat(answer)
            }
            told = answer(&mut self.drain_note) => {
                self.drain_note = None;
                if let Err(error) = told {
                    tracing::debug!(%error, "could not say that it drains");
                    if error.is_retryable() {
                        self.say_that_it_drains(self.config.lease / 10);
                    }
                }
                None
            }
            () = self.hints.changed(), if awaits_hint => {
                self.look_at = Instant::now();
                self.is_polling = false;
                None
            }
            () = sleep_until_some(wake_at) => None,
        }
    }

    /// Runs a claimed task, or hands it back.
    fn begin_task(&mut self, claimed: Claimed, is_draining: bool) {
        let held = Held { task: claimed.task, fence: claimed.fence };
        let cancelled = CancellationToken::new();
        let handler = self.handler_of(&claimed);
        let registration = self.registration_of(&claimed);
        let is_alone = registration.is_some_and(|one| one.definition.tasks().len() == 1);
        let attempt = Attempt::new(claimed, cancelled.clone(), self.draining.clone());
        let link = &self.parts.link;
        let attempt = attempt.payloads(link.payload_limit(), link.keyring());
        let attempt = attempt.alone(is_alone).planted(self.parts.planted);
        let attempt = Arc::new(attempt.gathers(Arc::clone(&self.gathers)));
        self.held.insert(HeldTask { attempt: Arc::clone(&attempt), cancelled: cancelled.clone() });
        let Some(handler) = handler.filter(|_| !is_draining) else {
            let delay = if is_draining { Duration::ZERO } else { UNKNOWN_TASK_DELAY };
            self.outbox.release(Release { task: held.task, fence: held.fence, delay });
            return;
        };
        let cancel_grace = self.config.cancel_grace;
        let span = spans::attempt(&attempt.claimed, self.worker);
        let run = attempt::run(self.parts.clone(), handler, attempt, cancelled, cancel_grace);
        let task = self.running.spawn(self.parts.gate.wrap(run.instrument(span)));
        self.by_id.insert(task.id(), held);
    }

    /// What a worker has for the workflow of a task.
    fn registration_of(&self, claimed: &Claimed) -> Option<&Registration> {
        let key = HandlerKey { workflow: claimed.workflow.clone(), version: claimed.version };
        self.parts.registrations.get(&key)
    }

    fn handler_of(&self, claimed: &Claimed) -> Option<crate::workflow::Handler> {
        let registration = self.registration_of(claimed)?;
        let index = claimed.task.index.as_usize();
        let spec = registration.definition.tasks().get(index)?;
        let handler = registration.handlers.get(index)?.clone();
        if spec.name != claimed.spec.name || handler.is_none() {
            tracing::warn!(workflow = %claimed.workflow, version = %claimed.version,
                run = %claimed.task.run, task = %claimed.spec.name, fence = claimed.fence.0,
                attempt = claimed.attempt, "no handler; handed back");
            return None;
        }
        handler
    }

    /// A handler ended: what follows is decided here and sent with the next flush.
    fn on_ended(&mut self, ended: Result<(Id, Option<Outcome>), JoinError>) {
        let (id, outcome) = match ended {
            Ok((id, Some(outcome))) => (id, outcome),
            // The process is dead; nothing more is going to happen.
            Ok((_, None)) => return,
            Err(error) => {
                let id = error.id();
                match error.try_into_panic() {
                    Ok(payload) => (id, attempt::panicked(payload)),
                    Err(_) => return,
                }
            }
        };
        let Some(held) = self.by_id.remove(&id) else { return };
        let Some(task) = self.held.get(held) else { return };
        let claimed = &task.attempt.claimed;
        if outcome == Outcome::Interrupted && task.attempt.is_handed_back() {
            let is_draining = self.draining.is_cancelled();
            let delay = if is_draining { Duration::ZERO } else { HAND_BACK_DELAY };
            tracing::info!(run = %held.task.run, task = %claimed.spec.name, fence = held.fence.0,
                attempt = claimed.attempt, "handed back");
            self.outbox.release(Release { task: held.task, fence: held.fence, delay });
            return;
        }
        if let Outcome::Failed(failure) = &outcome {
            let failure = spans::shown(failure, task.attempt.keyring.is_some());
            tracing::info!(run = %held.task.run, task = %claimed.spec.name, fence = held.fence.0,
                attempt = claimed.attempt, failure, "attempt failed");
        }
        let decision = decide(&claimed.spec.retry, claimed.attempt, outcome, self.rng.f64());
        self.outbox.finish(Completion { task: held.task, fence: held.fence, decision });
    }

    fn on_beat(&mut self, answer: Result<HeartbeatAnswer, StoreError>) -> Option<StoreError> {
        let notes = std::mem::take(&mut self.beat_notes);
        match answer {
            Ok(answer) => {
                self.renew(self.beat_began);
                self.beat_refusals.reset();
                self.lost_claim = self.lost_claim.filter(|lost| *lost > self.beat_settles);
                self.held.lose(&answer.lost);
                if answer.should_drain && !self.draining.is_cancelled() {
                    tracing::info!(worker = %self.worker, "drained by an operator");
                    self.draining.cancel();
                }
                None
            }
            Err(error @ StoreError::LeaseLost(_)) => Some(error),
            Err(error) => {
                match self.beat_refusals.is_old(&error) {
                    false => tracing::warn!(%error, "heartbeat failed"),
                    true => tracing::debug!(%error, "heartbeat failed"),
                }
                self.held.put_back(notes);
                self.beat_at = Instant::now() + self.config.lease / 10;
                None
            }
        }
    }

    /// Three quarters of the time to all of it, so that workers do not march in step.
    fn jittered(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(1.0 - self.rng.f64() / 4.0)
    }
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
