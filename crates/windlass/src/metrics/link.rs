//! A worker's link that counts what goes through it.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;
use windlass_core::{Call, PayloadLimit, TaskId, WorkerId};

use super::{Metrics, Outcome, Verb};
use crate::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Finished, Heartbeat, HeartbeatAnswer, Held, Hello, Hints, Recording, Release, StoreError,
    TakeSignal, Taken, ToUndo, WorkerLink,
};

/// A link that counts.
pub(crate) struct Metered {
    link: Arc<dyn WorkerLink>,
    metrics: Arc<Metrics>,
}

/// A call under way. One that nobody waits for any more was too slow, and counts as an error.
struct Timed<'a> {
    metrics: &'a Metrics,
    verb: Verb,
    began: Instant,
    is_well: bool,
}

impl Timed<'_> {
    fn end<T>(mut self, answer: &Result<T, StoreError>) {
        if let Err(StoreError::LeaseLost(_)) = answer {
            self.metrics.leases_lost.add(1);
        }
        self.is_well = answer.is_ok();
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let verb = self.metrics.verb(self.verb);
        verb.seconds.observe(self.began.elapsed().as_secs_f64());
        if !self.is_well {
            verb.errors.add(1);
        }
    }
}

impl Metered {
    pub(crate) fn new(link: Arc<dyn WorkerLink>, metrics: Arc<Metrics>) -> Self {
        Metered { link, metrics }
    }

    fn begin(&self, verb: Verb) -> Timed<'_> {
        Timed { metrics: &self.metrics, verb, began: Instant::now(), is_well: false }
    }

    fn note_refusals<'a>(&self, answers: impl IntoIterator<Item = &'a Answer>) {
        for answer in answers {
            match answer {
                Answer::Refused(refusal) => self.metrics.note_refusal(*refusal),
                Answer::Accepted | Answer::AcceptedAlready => {}
            }
        }
    }

    fn note_finished(&self, outcomes: &[Outcome], answers: &[Answer]) {
        self.metrics.finish_sizes.observe(outcomes.len() as f64);
        for (outcome, answer) in outcomes.iter().zip(answers) {
            match answer {
                // What was applied before was counted when its answer was lost, or never: one
                // that was counted twice would be worse.
                Answer::Accepted => self.metrics.note_outcome(*outcome),
                Answer::AcceptedAlready | Answer::Refused(_) => {}
            }
        }
        self.note_refusals(answers);
    }

    fn note_claimed(&self, claimed: &[Claimed]) {
        self.metrics.claim_sizes.observe(claimed.len() as f64);
        self.metrics.note_claimed(claimed.iter().map(|one| &one.spec.queue));
    }
}

fn outcomes(completions: &[Completion]) -> Vec<Outcome> {
    completions.iter().map(|one| Outcome::of(&one.decision)).collect()
}

#[async_trait]
impl WorkerLink for Metered {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        let timed = self.begin(Verb::Join);
        let answer = self.link.join(hello).await;
        timed.end(&answer);
        answer
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let timed = self.begin(Verb::Claim);
        let answer = self.link.claim(request).await;
        timed.end(&answer);
        if let Ok(claimed) = &answer {
            self.note_claimed(claimed);
        }
        answer
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        let outcomes = outcomes(&completions);
        let timed = self.begin(Verb::Finish);
        let answer = self.link.finish(completions).await;
        timed.end(&answer);
        if let Ok(answers) = &answer {
            self.note_finished(&outcomes, answers);
        }
        answer
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        let outcomes = outcomes(&completions);
        let timed = self.begin(Verb::Finish);
        let answer = self.link.finish_and_claim(completions, next).await;
        timed.end(&answer);
        if let Ok(Finished { answers, claimed }) = &answer {
            self.note_finished(&outcomes, answers);
            self.note_claimed(claimed);
        }
        answer
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        let timed = self.begin(Verb::Release);
        let answer = self.link.release(releases).await;
        timed.end(&answer);
        if let Ok(answers) = &answer {
            let accepted = answers.iter().filter(|answer| **answer == Answer::Accepted);
            accepted.for_each(|_| self.metrics.note_outcome(Outcome::HandedBack));
            self.note_refusals(answers);
        }
        answer
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        let timed = self.begin(Verb::Checkpoint);
        let answer = self.link.checkpoint(checkpoints).await;
        timed.end(&answer);
        if let Ok(answers) = &answer {
            self.note_refusals(answers);
        }
        answer
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        let timed = self.begin(Verb::Record);
        let answer = self.link.record(recordings).await;
        timed.end(&answer);
        if let Ok(answers) = &answer {
            self.note_refusals(answers);
        }
        answer
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        let timed = self.begin(Verb::TakeSignals);
        let answer = self.link.take_signals(takes).await;
        timed.end(&answer);
        answer
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        let timed = self.begin(Verb::StartChildren);
        let answer = self.link.start_children(starts).await;
        timed.end(&answer);
        answer
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        self.link.count_children(task, call).await
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        self.link.list_children(task, call, after, limit).await
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        self.link.read_undo(held).await
    }

    async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        let timed = self.begin(Verb::Extend);
        let answer = self.link.extend(heartbeat).await;
        timed.end(&answer);
        if let Ok(HeartbeatAnswer { lost, .. }) = &answer {
            self.metrics.tasks_lost.add(lost.len() as u64);
        }
        answer
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.link.begin_drain(worker).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.link.leave(worker).await
    }

    fn keyring(&self) -> Option<Arc<crate::store::sealed::Keyring>> {
        self.link.keyring()
    }

    fn work_hints(&self) -> Hints {
        self.link.work_hints()
    }

    fn is_watched(&self) -> bool {
        self.link.is_watched()
    }

    fn hears_hints(&self) -> bool {
        self.link.hears_hints()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.link.payload_limit()
    }
}
