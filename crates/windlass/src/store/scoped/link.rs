//! The verbs of a worker that works for one tenant.
//!
//! It is known by an id that is bound to the tenant, see [`ids`](super::ids), so that no id that it
//! says is another's worker; its claims find its tenant's tasks alone, and what it says of tasks of
//! others is answered as if there were none.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::{Call, PayloadLimit, TaskId, WorkerId};

use super::ids::bound_worker;
use super::{ScopedStore, spread, unknown};
use crate::store::batch::check_batch;
use crate::store::sealed::Keyring;
use crate::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Finished, Heartbeat, HeartbeatAnswer, Held, Hello, Hints, Lost, Recording, Refusal, Release,
    StoreError, TENANT_METADATA, TakeSignal, Taken, ToUndo, WorkerLink, find_workflow,
};
use crate::worker::SLOTS_MAX;

impl ScopedStore {
    fn bound(&self, worker: WorkerId) -> WorkerId {
        bound_worker(&self.tenant, worker)
    }

    /// A claim of the worker as it is known, for its tenant's tasks alone.
    fn own_claim(&self, request: ClaimRequest) -> Result<ClaimRequest, StoreError> {
        request.tenant.as_ref().map_or(Ok(()), |said| self.check_tenant(said))?;
        let tenant = Some(self.tenant.clone());
        Ok(ClaimRequest { worker: self.bound(request.worker), tenant, ..request })
    }

    /// What was leased, of which it is known from now on whose it is.
    fn see_claimed(&self, claimed: Vec<Claimed>) -> Result<Vec<Claimed>, StoreError> {
        if let Some(stray) = claimed.iter().find(|one| one.tenant != self.tenant) {
            let (task, own) = (stray.task, &self.tenant);
            let text = format!("task {task} was leased to tenant {own:?}, which does not have it");
            return Err(StoreError::Corrupt(text));
        }
        claimed.iter().for_each(|one| self.owned.remember(one.task.run));
        Ok(claimed)
    }

    /// A child of a function: of the same tenant, and of a workflow that is there.
    async fn check_child(&self, start: &ChildStart) -> Result<(), StoreError> {
        self.check_tenant(&start.run.tenant)?;
        let (name, version) = (&start.run.workflow, start.run.version);
        match find_workflow(&*self.store, name, version).await? {
            Some(_) => Ok(()),
            None => self.check_registered(&start.definition).await,
        }
    }
}

/// An error as whoever said this id is to hear it.
fn as_said(worker: WorkerId) -> impl Fn(StoreError) -> StoreError {
    move |error| match error {
        StoreError::LeaseLost(_) => StoreError::LeaseLost(worker),
        other @ (StoreError::NotFound(_)
        | StoreError::Conflict(_)
        | StoreError::TermOver { .. }
        | StoreError::Forbidden(_)
        | StoreError::Unauthenticated(_)
        | StoreError::Limited { .. }
        | StoreError::Unreadable(_)
        | StoreError::Unavailable(_)
        | StoreError::Corrupt(_)) => other,
    }
}

#[async_trait]
impl WorkerLink for ScopedStore {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        for definition in &hello.definitions {
            self.check_registered(definition).await?;
        }
        let worker = hello.worker;
        let mut hello = Hello { worker: self.bound(worker), ..hello };
        hello.info.metadata.insert(TENANT_METADATA.to_owned(), self.tenant.to_string());
        self.store.join(hello).await.map_err(as_said(worker))
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let worker = request.worker;
        let claimed = self.store.claim(self.own_claim(request)?).await;
        self.see_claimed(claimed.map_err(as_said(worker))?)
    }

    async fn claim_many(
        &self,
        requests: Vec<ClaimRequest>,
    ) -> Vec<Result<Vec<Claimed>, StoreError>> {
        let workers: Vec<WorkerId> = requests.iter().map(|one| one.worker).collect();
        let requests: Result<Vec<_>, _> =
            requests.into_iter().map(|one| self.own_claim(one)).collect();
        match requests {
            Ok(requests) => {
                let told = self.store.claim_many(requests).await;
                let see = |(told, worker): (Result<Vec<Claimed>, StoreError>, WorkerId)| {
                    self.see_claimed(told.map_err(as_said(worker))?)
                };
                told.into_iter().zip(workers).map(see).collect()
            }
            Err(error) => workers.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        let (kept, places) = self.sift(completions, |one| one.task.run).await?;
        Ok(spread(places, self.store.finish(kept).await?, unknown))
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        let worker = next.worker;
        let next = self.own_claim(next)?;
        let (kept, places) = self.sift(completions, |one| one.task.run).await?;
        let finished = self.store.finish_and_claim(kept, next).await;
        let Finished { answers, claimed } = finished.map_err(as_said(worker))?;
        let claimed = self.see_claimed(claimed)?;
        Ok(Finished { answers: spread(places, answers, unknown), claimed })
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        let (kept, places) = self.sift(releases, |one| one.task.run).await?;
        Ok(spread(places, self.store.release(kept).await?, unknown))
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        let (kept, places) = self.sift(checkpoints, |one| one.held.task.run).await?;
        Ok(spread(places, self.store.checkpoint(kept).await?, unknown))
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        let (kept, places) = self.sift(recordings, |one| one.held.task.run).await?;
        Ok(spread(places, self.store.record(kept).await?, unknown))
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        let (kept, places) = self.sift(takes, |one| one.held.task.run).await?;
        let taken = self.store.take_signals(kept).await?;
        Ok(spread(places, taken, || Err(Refusal::UnknownTask)))
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        check_batch(starts.len())?;
        let owned = self.owned_of(starts.iter().map(|start| start.held.task.run)).await?;
        let mut born: Vec<Option<Born>> = Vec::with_capacity(starts.len());
        let mut kept = Vec::new();
        for start in starts {
            let refused = if !owned.contains(&start.held.task.run) {
                Some(Born::Refused(Refusal::UnknownTask))
            } else {
                match self.check_child(&start).await {
                    Ok(()) => None,
                    Err(error) if error.is_retryable() => return Err(error),
                    Err(error) => Some(Born::Failed(error)),
                }
            };
            if refused.is_none() {
                kept.push(start);
            }
            born.push(refused);
        }
        let mut kept = self.store.start_children(kept).await?.into_iter();
        Ok(born.into_iter().map_while(|born| born.or_else(|| kept.next())).collect())
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        match self.owns(task.run).await? {
            true => self.store.count_children(task, call).await,
            false => Ok(ChildCount::default()),
        }
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        match self.owns(task.run).await? {
            true => self.store.list_children(task, call, after, limit).await,
            false => Ok(Vec::new()),
        }
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        match self.owns(held.task.run).await? {
            true => self.store.read_undo(held).await,
            false => Ok(Err(Refusal::UnknownTask)),
        }
    }

    async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        let Heartbeat { worker, settled, held, progress } = heartbeat;
        if held.len() > SLOTS_MAX {
            let text = format!("a worker holds {} tasks, the limit is {SLOTS_MAX}", held.len());
            return Err(StoreError::Conflict(text));
        }
        let (progress, _) = self.sift(progress, |note| note.held.task.run).await?;
        let owned = self.owned_of(held.iter().map(|held| held.task.run)).await?;
        let (kept, missing): (Vec<Held>, Vec<Held>) =
            held.into_iter().partition(|held| owned.contains(&held.task.run));
        let missing = missing.into_iter().map(|held| Lost { held, refusal: Refusal::UnknownTask });
        let heartbeat = Heartbeat { worker: self.bound(worker), settled, held: kept, progress };
        let mut answer = self.store.extend(heartbeat).await.map_err(as_said(worker))?;
        answer.lost.extend(missing);
        Ok(answer)
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        match self.store.begin_drain(self.bound(worker)).await {
            Err(StoreError::NotFound(_)) => {
                Err(StoreError::NotFound(format!("live worker {worker}")))
            }
            told => told,
        }
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.store.leave(self.bound(worker)).await.map_err(as_said(worker))
    }

    fn work_hints(&self) -> Hints {
        self.store.work_hints()
    }

    fn hears_hints(&self) -> bool {
        self.store.hears_hints()
    }

    fn is_watched(&self) -> bool {
        self.store.is_watched()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.store.payload_limit()
    }

    fn keyring(&self) -> Option<Arc<Keyring>> {
        self.store.keyring()
    }
}
