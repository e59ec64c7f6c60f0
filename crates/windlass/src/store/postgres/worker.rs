//! The verbs of a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use windlass_core::{Call, PayloadLimit, TaskId, WorkerId};

use super::PostgresStore;
use super::claim::lost;
use super::fault::{self, Fault, Remedy};
use super::onward::Next;
use super::party::Told;
use super::repeat::{repeat, without_unsound};
use crate::store::declared::Declared;
use crate::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Finished, Heartbeat, HeartbeatAnswer, Held, Hello, Hints, Recording, Refusal, Release, Store,
    StoreError, TakeSignal, Taken, ToUndo, WorkerLink, check_batch, fitting,
};

/// Calls a verb for a batch but for what is too large, and for each item alone if something else in
/// the batch cannot be stored: that must not keep the others back.
macro_rules! or_alone {
    ($store:ident . $together:ident ( $batch:ident ), $is_large:expr, $what:literal) => {{
        let (batch, places) = fitting($batch, $is_large);
        let answers = match $store.$together(&batch).await {
            Err(fault) if cannot_be_stored(&fault) => {
                let mut answers = Vec::with_capacity(batch.len());
                for one in &batch {
                    match $store.$together(std::slice::from_ref(one)).await {
                        Err(fault) if cannot_be_stored(&fault) => {
                            tell_unstorable(&fault, $what);
                            answers.push(Answer::Refused(Refusal::Invalid));
                        }
                        other => answers.extend(other?),
                    }
                }
                answers
            }
            other => other?,
        };
        Ok(places.answers(answers))
    }};
}

/// Whether the same would go wrong the next time.
fn cannot_be_stored(fault: &Fault) -> bool {
    match fault {
        Fault::Database(error) => fault::remedy(error) == Remedy::Data,
        Fault::Unsound { .. } => true,
        Fault::Answer(_) | Fault::Unavailable(_) | Fault::Unreachable(_) | Fault::Unnamed(_) => {
            false
        }
    }
}

fn tell_unstorable(fault: &Fault, what: &str) {
    match fault {
        Fault::Unsound { run, error } => tracing::error!(%run, %error, "a run contradicts itself"),
        Fault::Database(error) => {
            tracing::warn!(error = fault::describe(error), "{what} cannot be stored");
        }
        Fault::Answer(_) | Fault::Unavailable(_) | Fault::Unreachable(_) | Fault::Unnamed(_) => {}
    }
}

impl PostgresStore {
    /// Returns the declaration that a claim after completions goes by; `None` if it cannot be made.
    /// The next claim of the worker reports why.
    async fn declared_for(&self, next: &ClaimRequest) -> Option<Arc<Declared>> {
        self.check_claim(next).await.ok().flatten()
    }

    async fn claim_at_once(
        &self,
        party: &[&ClaimRequest],
        tries: &AtomicU32,
    ) -> Result<Vec<Option<Told>>, Fault> {
        repeat!(self.claim_together(party, tries), party.len())
    }

    /// The answers to claims of one party. What is wrong with one is not wrong with the others.
    async fn claim_party(&self, party: &[&ClaimRequest]) -> Vec<Result<Vec<Claimed>, StoreError>> {
        let tries = AtomicU32::new(0);
        let together = match self.claim_at_once(party, &tries).await.map_err(StoreError::from) {
            Ok(told) => told,
            // An earlier try may have taken tasks that nobody knows of.
            Err(_) if tries.load(Ordering::Relaxed) > 1 => {
                return party.iter().map(|request| Err(lost(request))).collect();
            }
            Err(error) if error.is_retryable() => return vec![Err(error); party.len()],
            Err(_) => vec![None; party.len()],
        };
        let mut told = Vec::with_capacity(party.len());
        for (request, answer) in party.iter().zip(together) {
            told.push(match answer {
                Some(answer) => answer,
                None => self.claim((*request).clone()).await,
            });
        }
        told
    }

    async fn finish_together(&self, completions: &[Completion]) -> Result<Vec<Answer>, Fault> {
        let finished: Result<Finished, Fault> =
            async { repeat!(self.finish_once(completions, None), completions.len()) }.await;
        finished.map(|finished| finished.answers)
    }

    async fn finish_onward(
        &self,
        completions: &[Completion],
        next: &Next<'_>,
    ) -> Result<Finished, Fault> {
        repeat!(self.finish_try(completions, next), completions.len())
    }

    async fn release_together(&self, releases: &[Release]) -> Result<Vec<Answer>, Fault> {
        repeat!(self.release_once(releases), releases.len())
    }

    async fn start_children_together(&self, starts: &[ChildStart]) -> Result<Vec<Born>, Fault> {
        repeat!(self.start_children_once(starts), starts.len())
    }

    async fn record_together(&self, recordings: &[Recording]) -> Result<Vec<Answer>, Fault> {
        repeat!(self.record_once(recordings), recordings.len())
    }

    async fn checkpoint_together(&self, batch: &[Checkpoint]) -> Result<Vec<Answer>, Fault> {
        repeat!(self.checkpoint_once(batch), batch.len())
    }
}

#[async_trait]
impl WorkerLink for PostgresStore {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        repeat!(self.join_once(&hello))
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        check_batch(request.limit)?;
        let tries = AtomicU32::new(0);
        repeat!(self.claim_try(&request, &tries), request.limit)
    }

    async fn claim_many(&self, requests: Vec<ClaimRequest>) -> Vec<Told> {
        let mut answers: Vec<_> = requests.iter().map(|_| Ok(Vec::new())).collect();
        for places in self.parties(&requests) {
            let party: Vec<&ClaimRequest> = places.iter().map(|place| &requests[*place]).collect();
            let told = match party.as_slice() {
                [alone] => vec![self.claim((*alone).clone()).await],
                _ => self.claim_party(&party).await,
            };
            for (place, told) in places.into_iter().zip(told) {
                answers[place] = told;
            }
        }
        answers
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        check_batch(completions.len())?;
        let is_large = |one: &Completion| one.is_over(self.payload_limit);
        or_alone!(self.finish_together(completions), is_large, "a completion")
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        check_batch(completions.len())?;
        check_batch(next.limit)?;
        let is_whole = !completions.iter().any(|one| one.is_over(self.payload_limit));
        if is_whole && let Some(declared) = self.declared_for(&next).await {
            let next = ClaimRequest { limit: declared.room_max(&next), ..next };
            match self.finish_onward(&completions, &Next::new(&next, &declared)).await {
                Err(fault) if cannot_be_stored(&fault) => {}
                other => return Ok(other?),
            }
        }
        Ok(Finished { answers: self.finish(completions).await?, claimed: Vec::new() })
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        check_batch(releases.len())?;
        or_alone!(self.release_together(releases), |_| false, "a hand-back")
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        check_batch(checkpoints.len())?;
        let is_large = |one: &Checkpoint| self.payload_limit.check(&one.value).is_err();
        or_alone!(self.checkpoint_together(checkpoints), is_large, "a checkpoint")
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        check_batch(recordings.len())?;
        let is_large = |one: &Recording| one.is_over(self.payload_limit);
        or_alone!(self.record_together(recordings), is_large, "a record of steps")
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        check_batch(takes.len())?;
        repeat!(self.take_signals_once(&takes), takes.len())
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        check_batch(starts.len())?;
        let born = self.start_children_together(&starts).await?;
        let mut unknown = Vec::new();
        for (start, born) in starts.iter().zip(&born) {
            let is_unknown = matches!(born, Born::Failed(StoreError::NotFound(_)));
            if is_unknown && !unknown.contains(&start.definition) {
                unknown.push(Arc::clone(&start.definition));
            }
        }
        if unknown.is_empty() {
            return Ok(born);
        }
        for definition in unknown {
            self.register(definition).await?;
        }
        Ok(self.start_children_together(&starts).await?)
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        repeat!(self.read_undo_once(held))
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        repeat!(self.count_children_once(task, call))
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        repeat!(self.list_children_once(task, call, after, limit))
    }

    async fn extend(&self, mut heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        heartbeat.drop_large_notes(self.payload_limit);
        without_unsound!(self, repeat!(self.extend_once(&heartbeat)))
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        repeat!(self.begin_drain_once(worker))
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.peeks.forget(worker);
        self.declarations.forget(worker);
        without_unsound!(self, repeat!(self.leave_once(worker)))
    }

    fn hears_hints(&self) -> bool {
        self.notifier.hears() && !self.may_prepare.load(Ordering::Relaxed)
    }

    fn keyring(&self) -> Option<Arc<crate::store::sealed::Keyring>> {
        None
    }

    fn work_hints(&self) -> Hints {
        self.notifier.work()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.payload_limit
    }
}
