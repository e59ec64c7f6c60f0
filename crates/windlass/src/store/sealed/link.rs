//! The verbs of a worker.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::{
    Call, Decision, Failure, FailureCode, Outcome, PayloadLimit, TaskId, TaskIndex, WorkerId,
    decide,
};

use super::place::Place;
use super::{Keyring, SealedStore, unanswered};
use crate::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Finished, Heartbeat, HeartbeatAnswer, Held, Hello, Hints, Recording, Release, Signalled,
    StoreError, TakeSignal, Taken, ToUndo, WorkerLink, fitting,
};

impl SealedStore {
    async fn sealed(
        &self,
        mut completions: Vec<Completion>,
    ) -> Result<Vec<Completion>, StoreError> {
        for completion in &mut completions {
            let task = completion.task;
            let because_of = match &completion.decision {
                // A function is the first task of its run.
                Decision::Fail(failure) if task.index == TaskIndex(0) => {
                    self.failed_call(task, failure).await?
                }
                Decision::Fail(_)
                | Decision::Succeed(_)
                | Decision::Retry { .. }
                | Decision::Skip
                | Decision::Park(_)
                | Decision::Continue(_) => None,
            };
            self.keys.seal_completion(completion);
            if let (Decision::Fail(failure), Some(of_call)) = (&mut completion.decision, because_of)
                && failure.message != of_call
            {
                failure.message = format!("{} {of_call}", failure.message);
            }
        }
        Ok(completions)
    }

    /// Those of the claimed tasks that can be opened. The others fail here, as their policies say:
    /// no handler is to see what is not its input.
    async fn opened(&self, claimed: Vec<Claimed>) -> Vec<Claimed> {
        let (mut opened, mut closed) = (Vec::with_capacity(claimed.len()), Vec::new());
        for mut one in claimed {
            let Err(error) = self.keys.open_claimed(&mut one) else {
                opened.push(one);
                continue;
            };
            let is_for_others = error.may_open_elsewhere();
            let error = StoreError::from(error);
            tracing::error!(run = %one.task.run, task = %one.spec.name, %error, "a task fails unread");
            let failure = Failure::new(FailureCode::Payload, error.to_string());
            let failure = if is_for_others { failure } else { failure.permanent() };
            let outcome = Outcome::Failed(failure);
            let decision = decide(&one.spec.retry, one.attempt, outcome, fastrand::f64());
            closed.push(Completion { task: one.task, fence: one.fence, decision });
        }
        if !closed.is_empty()
            && let Err(error) = self.inner.finish(closed).await
        {
            // The worker does not know of them: the next heartbeat gives them back.
            tracing::warn!(%error, "tasks that cannot be opened were not finished");
        }
        opened
    }
}

#[async_trait]
impl WorkerLink for SealedStore {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        for definition in &hello.definitions {
            self.learn(definition);
        }
        self.inner.join(hello).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let claimed = self.inner.claim(request).await?;
        Ok(self.opened(claimed).await)
    }

    async fn claim_many(
        &self,
        requests: Vec<ClaimRequest>,
    ) -> Vec<Result<Vec<Claimed>, StoreError>> {
        let mut answers = self.inner.claim_many(requests).await;
        for claimed in answers.iter_mut().flatten() {
            *claimed = self.opened(std::mem::take(claimed)).await;
        }
        answers
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        let limit = self.limit();
        let (completions, places) = fitting(completions, |one| one.is_over(limit));
        let answers = self.inner.finish(self.sealed(completions).await?).await?;
        Ok(places.answers(answers))
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        let limit = self.limit();
        let (completions, places) = fitting(completions, |one| one.is_over(limit));
        let completions = self.sealed(completions).await?;
        let Finished { answers, claimed } = self.inner.finish_and_claim(completions, next).await?;
        let answers = places.answers(answers);
        Ok(Finished { answers, claimed: self.opened(claimed).await })
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        self.inner.release(releases).await
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        let limit = self.limit();
        let (mut checkpoints, places) =
            fitting(checkpoints, |checkpoint| limit.check(&checkpoint.value).is_err());
        checkpoints.iter_mut().for_each(|checkpoint| self.keys.seal_checkpoint(checkpoint));
        Ok(places.answers(self.inner.checkpoint(checkpoints).await?))
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        let limit = self.limit();
        let (mut recordings, places) = fitting(recordings, |one| one.is_over(limit));
        recordings.iter_mut().for_each(|recording| self.keys.seal_recording(recording));
        Ok(places.answers(self.inner.record(recordings).await?))
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        let asked = takes.clone();
        let mut answers = self.inner.take_signals(takes).await?;
        for (take, answer) in asked.iter().zip(&mut answers) {
            let Ok(Some(Signalled::Value(value))) = answer else { continue };
            let run = take.held.task.run;
            match &take.key {
                None => self.keys.open_signal(&Place::Signal(run, &take.name), value)?,
                Some(key) => {
                    let tenant = self.tenant_of(run).await?;
                    let tenant =
                        tenant.ok_or_else(|| StoreError::NotFound(format!("run {run}")))?;
                    let place = Place::KeySignal(&tenant, key, &take.name);
                    self.keys.open_signal(&place, value)?;
                }
            }
        }
        Ok(answers)
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        let fields: Vec<_> = starts.iter().map(|start| self.learn(&start.definition)).collect();
        let limit = self.limit();
        let wrong: Vec<_> = starts.iter().map(|start| start.run.check(limit).err()).collect();
        let mut sealed = Vec::with_capacity(starts.len());
        for ((start, fields), wrong) in starts.iter().zip(&fields).zip(&wrong) {
            if wrong.is_none() {
                let mut start = start.clone();
                self.keys.seal_start(&mut start.run, fields);
                sealed.push(start);
            }
        }
        let mut within = self.inner.start_children(sealed).await?.into_iter();
        let mut answers = Vec::with_capacity(starts.len());
        for ((start, fields), wrong) in starts.iter().zip(&fields).zip(wrong) {
            let answer = match wrong {
                Some(why) => Born::Failed(StoreError::Conflict(why)),
                None => match within.next().ok_or_else(unanswered)? {
                    Born::Failed(conflict @ StoreError::Conflict(_)) => {
                        let existing = self.judge_existing(&start.run, fields).await?;
                        existing.map_or(Born::Failed(conflict), Born::Started)
                    }
                    answer @ (Born::Failed(_) | Born::Started(_) | Born::Refused(_)) => answer,
                },
            };
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        self.inner.count_children(task, call).await
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        let mut children = self.inner.list_children(task, call, after, limit).await?;
        for child in &mut children {
            // The output is that of the only task.
            let only = TaskId { run: child.run, index: TaskIndex(0) };
            if let Some(result) = &mut child.result {
                self.keys.open_result(only, result)?;
            }
        }
        Ok(children)
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        let mut answer = self.inner.read_undo(held).await?;
        if let Ok(tasks) = &mut answer {
            for task in tasks {
                self.keys.open_claimed(task)?;
            }
        }
        Ok(answer)
    }

    async fn extend(&self, mut heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        heartbeat.drop_large_notes(self.limit());
        self.keys.seal_heartbeat(&mut heartbeat);
        self.inner.extend(heartbeat).await
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.inner.begin_drain(worker).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.inner.leave(worker).await
    }

    fn work_hints(&self) -> Hints {
        self.inner.work_hints()
    }

    fn hears_hints(&self) -> bool {
        self.inner.hears_hints()
    }

    fn is_watched(&self) -> bool {
        self.inner.is_watched()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.limit()
    }

    fn keyring(&self) -> Option<Arc<Keyring>> {
        Some(Arc::clone(&self.keys))
    }
}
