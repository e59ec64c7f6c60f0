//! When a worker claims, and what it does with the answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::Decision;

use super::super::call::limited;
use super::super::outbox::Onward;
use super::Session;
use crate::planted::PlantedBug;
use crate::store::{ClaimRequest, Claimed, Held, StoreError};

/// How many times longer a worker waits between looks that find nothing, at most, while hints
/// of other processes are heard.
const HEARD: u32 = 5;

/// The same where a server watches for tasks on behalf of the worker.
const WATCHED: u32 = 30;

/// The most tasks of one claim.
pub(super) const CLAIM_MAX: usize = 1_000;

impl Session {
    /// Whether a claim is under way, by itself or with a flush.
    pub(super) fn is_claiming(&self) -> bool {
        self.claim.is_some() || self.carried.is_some()
    }

    /// Whether the next flush, if it is time for it, tells of a task that others wait for: those
    /// behind it in its run, or in its lanes.
    pub(super) fn leads_on(&self, now: Instant) -> bool {
        self.outbox.next_finishes(now).iter().any(|one| {
            let held = self.held.get(Held { task: one.task, fence: one.fence });
            let registration = held.and_then(|task| self.registration_of(&task.attempt.claimed));
            let is_parent = registration.is_some_and(|registration| {
                let index = one.task.index;
                let is_known = index.as_usize() < registration.definition.tasks().len();
                is_known && !registration.definition.children(index).is_empty()
            });
            let has_slots = held.is_some_and(|task| !task.attempt.claimed.spec.limits.is_empty());
            (is_parent || has_slots) && matches!(one.decision, Decision::Succeed(_))
        })
    }

    pub(super) fn begin_claim(&mut self, now: Instant) {
        self.hints.take();
        self.claim_began = now;
        let request = self.next_claim();
        let link = Arc::clone(&self.parts.link);
        self.claim = Some(limited(self.call_limit(), async move { link.claim(request).await }));
    }

    pub(super) fn next_claim(&mut self) -> ClaimRequest {
        self.claim_seq = self.claim_seq.next();
        let is_greedy = self.parts.planted.has(PlantedBug::ClaimsOverSlots);
        let busy = if is_greedy { 0 } else { self.running.len() };
        self.claim_limit = (self.config.slots - busy).min(self.claim_max);
        ClaimRequest {
            worker: self.worker,
            seq: self.claim_seq,
            queues: Arc::clone(&self.config.queues),
            handlers: Arc::clone(&self.handlers),
            limit: self.claim_limit,
            ending: self.outbox.len(),
            is_poll: self.is_polling,
            tenant: None,
        }
    }

    pub(super) fn on_claimed(
        &mut self,
        claimed: Result<Vec<Claimed>, StoreError>,
        is_draining: bool,
    ) -> Option<StoreError> {
        self.settled = self.claim_seq;
        let now = Instant::now();
        match claimed {
            Ok(claimed) => {
                self.claim_backoff.reset();
                self.claim_refusals.reset();
                self.claim_max = (self.claim_max * 2).min(CLAIM_MAX);
                let is_full = claimed.len() == self.claim_limit;
                let pause = match self.parts.planted.has(PlantedBug::HintsWithoutPolling) {
                    // Until the end of the simulation.
                    true => Duration::from_secs(1_000_000),
                    false => self.poll_pause(claimed.is_empty()),
                };
                self.look_at = if is_full { now } else { now + pause };
                // Sooner, never later: a heartbeat that every claim put off would never
                // name the tasks that the worker does not know of.
                if !claimed.is_empty() {
                    self.beat_at = self.beat_at.min(self.claim_began + self.config.lease / 3);
                }
                // A lease begins with a worker's first task; heartbeats keep it.
                if self.held.is_empty() {
                    self.renew(self.claim_began);
                }
                for claimed in claimed {
                    self.begin_task(claimed, is_draining);
                }
                None
            }
            Err(error @ StoreError::LeaseLost(_)) => Some(error),
            Err(error) => {
                let pause = self.claim_backoff.next_pause();
                self.claim_max = (self.claim_limit / 2).max(1);
                match self.claim_refusals.is_old(&error) {
                    false => tracing::warn!(%error, ?pause, "claim failed"),
                    true => tracing::debug!(%error, ?pause, "claim failed"),
                }
                self.look_at = now + self.jittered(pause);
                self.lost_claim = Some(self.claim_seq);
                self.beat_at = now;
                None
            }
        }
    }

    /// The answer to a claim that a flush carried; `None` if it was lost.
    pub(super) fn on_carried(
        &mut self,
        next: Onward,
        claimed: Option<Vec<Claimed>>,
        is_draining: bool,
    ) {
        // What an earlier life was given is others' by now.
        if next.worker != self.worker || self.carried.take_if(|seq| *seq == next.seq).is_none() {
            return;
        }
        self.settled = next.seq;
        let Some(claimed) = claimed else {
            self.lost_claim = Some(next.seq);
            self.beat_at = Instant::now();
            return;
        };
        if claimed.len() == next.limit {
            self.look_at = Instant::now();
        }
        // The lease is that of the tasks that were finished: heartbeats keep it.
        if !claimed.is_empty() {
            self.beat_at = self.beat_at.min(next.began + self.config.lease / 3);
        }
        for claimed in claimed {
            self.begin_task(claimed, is_draining);
        }
    }

    /// How long to wait for hints before the next look: longer each time that nothing was found,
    /// if hints are heard.
    fn poll_pause(&mut self, is_empty: bool) -> Duration {
        let poll = self.config.poll;
        self.is_polling = is_empty;
        self.poll_pause = match is_empty && self.parts.link.hears_hints() {
            true => {
                let times = if self.parts.link.is_watched() { WATCHED } else { HEARD };
                self.poll_pause.saturating_mul(2).clamp(poll, poll.saturating_mul(times))
            }
            false => poll,
        };
        self.jittered(self.poll_pause)
    }
}
