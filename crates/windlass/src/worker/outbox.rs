//! What a worker has to tell the store: completions and hand-backs.
//!
//! Parcels gather while a flush is under way and leave together with the next. If many
//! have gathered, they do not wait for it: while the store keeps one batch, it can read
//! the next. A flush whose answer was lost is sent again as it was; the fences judge it.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::{ClaimSeq, Decision, Failure, FailureCode, TaskName, WorkerId};

use super::call::{Pending, limited};
use super::held::HeldTasks;
use super::refusals::Refusals;
use super::{Parts, Point};
use crate::backoff::Backoff;
use crate::store::{
    Answer, BATCH_MAX, ClaimRequest, Completion, Finished, Held, Refusal, Release, StoreError,
    batch_len,
};

/// How many flushes may be under way.
const FLUSHES_MAX: usize = 2;

/// How many completions must have gathered for a flush to begin while another is under way.
const GATHERED_MIN: usize = 200;

/// The most completions that wait for their answer before claiming pauses.
const PARCELS_MAX: usize = BATCH_MAX;

type Answers = Result<Finished, StoreError>;

pub(super) struct Outbox {
    finishes: Vec<Completion>,
    releases: Vec<Release>,
    flushes: Vec<Flush>,
    /// The most parcels of a flush: half of those of the last one if it failed, since it may
    /// have been too much for the time it had.
    flush_max: usize,
    pub(super) flush_at: Instant,
    backoff: Backoff,
    refusals: Refusals,
}

/// A flush that is under way.
struct Flush {
    call: Pending<Answers>,
    batch: Flushing,
    next: Option<Onward>,
}

/// The claim that a flush carries beside completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Onward {
    pub(super) worker: WorkerId,
    pub(super) seq: ClaimSeq,
    pub(super) limit: usize,
    pub(super) began: Instant,
}

/// A flush that was answered.
pub(super) struct Flushed {
    pub(super) batch: Flushing,
    pub(super) answers: Answers,
    /// The claim that it carried.
    pub(super) next: Option<Onward>,
}

/// What a flush carries.
pub(super) enum Flushing {
    Finishes(Vec<Completion>),
    Releases(Vec<Release>),
}

impl Outbox {
    pub(super) fn new(now: Instant) -> Self {
        Outbox {
            finishes: Vec::new(),
            releases: Vec::new(),
            flushes: Vec::new(),
            flush_max: BATCH_MAX,
            flush_at: now,
            backoff: Backoff::default(),
            refusals: Refusals::default(),
        }
    }

    pub(super) fn finish(&mut self, completion: Completion) {
        self.finishes.push(completion);
    }

    pub(super) fn release(&mut self, release: Release) {
        self.releases.push(release);
    }

    pub(super) fn has_parcels(&self) -> bool {
        !self.finishes.is_empty() || !self.releases.is_empty()
    }

    /// How many parcels have not been answered.
    pub(super) fn len(&self) -> usize {
        let told: usize = self.flushes.iter().map(|flush| flush.batch.len()).sum();
        self.finishes.len() + self.releases.len() + told
    }

    pub(super) fn is_full(&self) -> bool {
        self.finishes.len() >= PARCELS_MAX
    }

    pub(super) fn is_flushing(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// Whether everything was told and answered.
    pub(super) fn is_done(&self) -> bool {
        self.flushes.is_empty() && !self.has_parcels()
    }

    /// What a flush that is about to begin would finish; nothing if it is not time.
    pub(super) fn next_finishes(&self, now: Instant) -> &[Completion] {
        match self.is_due(now) && self.releases.is_empty() {
            true => &self.finishes,
            false => &[],
        }
    }

    /// Whether there is something to tell and it is time.
    fn is_due(&self, now: Instant) -> bool {
        let is_free = match self.flushes.len() {
            0 => true,
            under_way => under_way < FLUSHES_MAX && self.finishes.len() >= GATHERED_MIN,
        };
        is_free && self.has_parcels() && now >= self.flush_at
    }

    /// Begins a flush if there is something to tell and it is time. If it tells completions, it
    /// carries the claim along.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        parts: &Parts,
        held: &HeldTasks,
        limit: Duration,
        next: Option<ClaimRequest>,
    ) {
        if !self.is_due(now) {
            return;
        }
        let link = Arc::clone(&parts.link);
        if !self.releases.is_empty() {
            let batch: Vec<_> =
                self.releases.drain(..self.releases.len().min(self.flush_max)).collect();
            let flushing = Flushing::Releases(batch.clone());
            let call = limited(limit, async move {
                let answers = link.release(batch).await?;
                Ok(Finished { answers, claimed: Vec::new() })
            });
            self.flushes.push(Flush { call, batch: flushing, next: None });
            return;
        }
        let count = batch_len(self.finishes.iter().map(Completion::bytes), self.flush_max);
        let batch: Vec<_> = self.finishes.drain(..count).collect();
        let flushing = Flushing::Finishes(batch.clone());
        let names = if parts.probe.is_some() { names_of(&batch, held) } else { Vec::new() };
        let parts = parts.clone();
        let carried = next.as_ref().map(|next| Onward {
            worker: next.worker,
            seq: next.seq,
            limit: next.limit,
            began: now,
        });
        let call: Pending<Answers> = Box::pin(async move {
            for name in &names {
                parts.reached(Point::BeforeCommit, name.as_str()).await;
            }
            let answers = limited(limit, async move {
                match next {
                    Some(next) => link.finish_and_claim(batch, next).await,
                    None => {
                        let answers = link.finish(batch).await?;
                        Ok(Finished { answers, claimed: Vec::new() })
                    }
                }
            });
            let answers = answers.await;
            for name in &names {
                parts.reached(Point::AfterCommit, name.as_str()).await;
            }
            answers
        });
        self.flushes.push(Flush { call, batch: flushing, next: carried });
    }

    /// The next answers to a flush, and what it carried; never, if none is under way. Cancel
    /// safe.
    pub(super) async fn answers(&mut self) -> Flushed {
        std::future::poll_fn(|context| {
            for place in 0..self.flushes.len() {
                if let Poll::Ready(answers) = self.flushes[place].call.as_mut().poll(context) {
                    let Flush { batch, next, .. } = self.flushes.remove(place);
                    return Poll::Ready(Flushed { batch, answers, next });
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Takes the answers to a flush: what was answered is no longer held. The error is one
    /// that no repetition mends.
    pub(super) fn settle(
        &mut self,
        batch: Flushing,
        answers: Result<Vec<Answer>, StoreError>,
        held: &mut HeldTasks,
        jitter: f64,
    ) -> Result<(), StoreError> {
        let is_whole = |answers: &Vec<Answer>| answers.len() == batch.len();
        let answers = answers.and_then(|answers| match is_whole(&answers) {
            true => Ok(answers),
            false => Err(StoreError::Unavailable(format!("{} answers", answers.len()))),
        });
        match answers {
            Ok(answers) => {
                self.backoff.reset();
                self.refusals.reset();
                self.flush_max = (self.flush_max * 2).min(BATCH_MAX);
                self.take_answers(batch, answers, held)
            }
            // What was done is not given up for a token that someone may mend: until then the store
            // takes it back when the lease runs out, and the fences judge it.
            Err(error) if error.may_pass() => {
                let pause = self.backoff.next_pause().mul_f64(1.0 - jitter / 4.0);
                match self.refusals.is_old(&error) {
                    false => tracing::warn!(%error, ?pause, "flush failed"),
                    true => tracing::debug!(%error, ?pause, "flush failed"),
                }
                self.flush_at = Instant::now() + pause;
                self.flush_max = (batch.len() / 2).max(1);
                match batch {
                    Flushing::Finishes(batch) => drop(self.finishes.splice(..0, batch)),
                    Flushing::Releases(batch) => drop(self.releases.splice(..0, batch)),
                }
                Ok(())
            }
            Err(error) => {
                batch.held().into_iter().for_each(|parcel| drop(held.remove(parcel)));
                Err(error)
            }
        }
    }

    fn take_answers(
        &mut self,
        batch: Flushing,
        answers: Vec<Answer>,
        held: &mut HeldTasks,
    ) -> Result<(), StoreError> {
        let is_finish = matches!(batch, Flushing::Finishes(_));
        for (Held { task, fence }, answer) in batch.held().into_iter().zip(&answers) {
            match answer {
                Answer::Refused(Refusal::Invalid) if is_finish => continue,
                Answer::Refused(refusal) => {
                    tracing::warn!(%task, fence = fence.0, ?refusal, "refused")
                }
                Answer::Accepted | Answer::AcceptedAlready => {}
            }
            held.remove(Held { task, fence });
        }
        let Flushing::Finishes(batch) = batch else { return Ok(()) };
        let invalid = batch
            .into_iter()
            .zip(answers)
            .filter(|(_, answer)| *answer == Answer::Refused(Refusal::Invalid));
        invalid.map(|(completion, _)| completion).try_for_each(|c| self.report_invalid(c))
    }

    /// An outcome that the store cannot keep: the task fails, saying so. If not even
    /// that can be kept, the worker must let the lease run out, so that the attempt
    /// counts.
    fn report_invalid(&mut self, completion: Completion) -> Result<(), StoreError> {
        let Completion { task, fence, decision } = completion;
        tracing::error!(%task, fence = fence.0, "the outcome cannot be stored");
        if matches!(decision, Decision::Fail(_)) {
            return Err(StoreError::Corrupt(format!("the failure of task {task} is refused")));
        }
        let failure = Failure::new(FailureCode::Payload, "the outcome cannot be stored");
        let decision = Decision::Fail(failure.permanent());
        self.finishes.push(Completion { task, fence, decision });
        Ok(())
    }
}

impl Flushing {
    fn len(&self) -> usize {
        match self {
            Flushing::Finishes(batch) => batch.len(),
            Flushing::Releases(batch) => batch.len(),
        }
    }

    fn held(&self) -> Vec<Held> {
        match self {
            Flushing::Finishes(batch) => {
                batch.iter().map(|c| Held { task: c.task, fence: c.fence }).collect()
            }
            Flushing::Releases(batch) => {
                batch.iter().map(|r| Held { task: r.task, fence: r.fence }).collect()
            }
        }
    }
}

/// The names of the tasks of a batch, for the probe.
fn names_of(batch: &[Completion], held: &HeldTasks) -> Vec<TaskName> {
    let name = |c: &Completion| {
        let task = held.get(Held { task: c.task, fence: c.fence })?;
        Some(task.attempt.claimed.spec.name.clone())
    };
    batch.iter().filter_map(name).collect()
}
