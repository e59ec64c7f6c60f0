//! What workers say of the tasks they hold.

use windlass_core::{Decision, TaskCommand, TaskEventKind, TaskId, TaskState, Timestamp};

use super::run::{Run, Verb};
use super::state::{AttemptEnd, Shared, State};
use crate::planted::PlantedBug;
use crate::store::{Answer, Checkpoint, Completion, Held, Refusal, Release, StoreError};

impl State {
    pub(super) fn finish_all(
        &mut self,
        completions: Vec<Completion>,
    ) -> Result<Vec<Answer>, StoreError> {
        let limit = self.shared.payload_limit;
        let finish = |completion: Completion| match completion.is_over(limit) {
            true => Ok(Answer::Refused(Refusal::Invalid)),
            false => self.finish(completion),
        };
        completions.into_iter().map(finish).collect()
    }

    fn finish(&mut self, completion: Completion) -> Result<Answer, StoreError> {
        let mut held = Held { task: completion.task, fence: completion.fence };
        let is_parked = matches!(completion.decision, Decision::Park(_));
        if is_parked {
            held = self.blind(held, PlantedBug::ParkWithoutFence);
        }
        if let Some(answer) = self.judge(held, Verb::Finish) {
            return Ok(answer);
        }
        let Some(run) = self.runs.get_mut(&held.task.run) else {
            return Ok(Answer::Refused(Refusal::UnknownTask));
        };
        if let Decision::Park(parking) = &completion.decision
            && !run.can_park(held.task.index, parking, self.shared.now)
        {
            return Ok(Answer::Refused(Refusal::Invalid));
        }
        if let Decision::Continue(_) = &completion.decision
            && run.tasks.len() != 1
        {
            return Ok(Answer::Refused(Refusal::Invalid));
        }
        let is_continued = matches!(completion.decision, Decision::Continue(_));
        let is_failure = completion.decision.attempt_failed();
        run.give_up_lease(&mut self.shared, held.task, Verb::Finish);
        run.apply_decision(&mut self.shared, held.task, completion.decision)?;
        if let Some(is_failure) = is_failure {
            let is_retried = !run.task(held.task.index).state.is_final();
            let end = AttemptEnd { task: held.task, is_failure, is_retried };
            self.shared.attempts.push(end);
        }
        if is_continued {
            self.forget_children(held.task.run);
        }
        if is_parked && !self.shared.planted.has(PlantedBug::ChildMissedAtPark) {
            self.resume_parent(held.task)?;
        }
        Ok(Answer::Accepted)
    }

    pub(super) fn release(&mut self, release: &Release) -> Result<Answer, StoreError> {
        let held = Held { task: release.task, fence: release.fence };
        if let Some(answer) = self.judge(held, Verb::HandBack) {
            return Ok(answer);
        }
        let until = (!release.delay.is_zero()).then(|| self.shared.now + release.delay);
        self.hand_back(release.task, until)?;
        Ok(Answer::Accepted)
    }

    pub(super) fn checkpoint(&mut self, checkpoint: Checkpoint) -> Answer {
        let held = checkpoint.held;
        if self.shared.payload_limit.check(&checkpoint.value).is_err() {
            return Answer::Refused(Refusal::Invalid);
        }
        match self.holder(held) {
            Ok(run) => {
                let kept = &mut run.task(held.task.index).checkpoint;
                let is_newer = |kept: &Checkpoint| {
                    kept.held.fence < held.fence || checkpoint.replaces(kept.number)
                };
                if kept.as_ref().is_none_or(is_newer) {
                    *kept = Some(checkpoint);
                }
                Answer::Accepted
            }
            Err(refusal) => Answer::Refused(refusal),
        }
    }

    /// The answer to a write with this fence, `None` if it is to be applied.
    fn judge(&mut self, held: Held, verb: Verb) -> Option<Answer> {
        let run = self.runs.get_mut(&held.task.run);
        let task = run.and_then(|run| run.tasks.get_mut(held.task.index.as_usize()));
        let Some(task) = task else {
            return Some(Answer::Refused(Refusal::UnknownTask));
        };
        let planted = self.shared.planted;
        if task.answered == Some((held.fence, verb)) {
            if planted.has(PlantedBug::RepeatedFinishCounts) {
                self.count_again(held.task);
            }
            return Some(Answer::AcceptedAlready);
        }
        if planted.has(PlantedBug::FinishWithoutFence) && task.state == TaskState::Running {
            return None;
        }
        self.holder(held).err().map(Answer::Refused)
    }

    /// Puts a task that was not run back where it stood, or off until a time.
    pub(super) fn hand_back(
        &mut self,
        id: TaskId,
        until: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let Some(run) = self.runs.get_mut(&id.run) else {
            return Err(StoreError::Corrupt(format!("task {id} is leased without a run")));
        };
        run.give_up_lease(&mut self.shared, id, Verb::HandBack);
        run.hand_back(&mut self.shared, id, until)
    }
}

impl Run {
    fn give_up_lease(&mut self, shared: &mut Shared, id: TaskId, verb: Verb) {
        let task = self.task(id.index);
        task.answered = Some((task.fence, verb));
        if let Some(worker) = task.holder.take() {
            shared.unlease(worker, id);
        }
    }

    fn hand_back(
        &mut self,
        shared: &mut Shared,
        id: TaskId,
        until: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let costs_attempt = shared.planted.has(PlantedBug::ReleaseCostsAttempt);
        let task = self.task(id.index);
        task.attempt -= u32::from(!costs_attempt);
        let kind = TaskEventKind::Released { until };
        match until {
            Some(until) => {
                self.move_task(shared, id.index, TaskCommand::Defer, kind)?;
                self.schedule(shared, id.index, until);
            }
            None => {
                let place = task.place.clone();
                self.move_task(shared, id.index, TaskCommand::Release, kind)?;
                match place {
                    Some(place) => {
                        shared.ready.put_back(id, &place);
                        self.limit_wait(shared, id.index);
                    }
                    None => self.enqueue(shared, id.index),
                }
                shared.wakes.work.push(id);
            }
        }
        Ok(())
    }

    fn apply_decision(
        &mut self,
        shared: &mut Shared,
        id: TaskId,
        decision: Decision,
    ) -> Result<(), StoreError> {
        let index = id.index;
        match decision {
            Decision::Succeed(output) => {
                self.task(index).output = Some(output);
                self.end_task(shared, index, TaskCommand::Succeed, TaskEventKind::Succeeded)
            }
            Decision::Skip => {
                self.end_task(shared, index, TaskCommand::Skip, TaskEventKind::Skipped)
            }
            Decision::Park(parking) => self.park(shared, index, parking),
            Decision::Continue(input) => self.begin_afresh(shared, index, input),
            Decision::Fail(failure) => {
                self.task(index).failure = Some(failure.clone());
                let kind = TaskEventKind::Failed { failure };
                self.end_task(shared, index, TaskCommand::Fail, kind)
            }
            Decision::Retry { failure, delay } => {
                let max_attempts = self.definition.task(index).retry.max_attempts();
                if self.task(index).attempt >= max_attempts {
                    // Whoever decided knew another policy; the bound is this one.
                    return self.apply_decision(shared, id, Decision::Fail(failure));
                }
                self.task(index).failure = Some(failure.clone());
                let until = shared.now + delay;
                let kind = TaskEventKind::Retrying { failure, until };
                self.move_task(shared, index, TaskCommand::Retry, kind)?;
                if shared.planted.has(PlantedBug::BackoffInMemory) {
                    self.task(index).due = Some(shared.next_order(until));
                    return Ok(());
                }
                self.schedule(shared, index, until);
                Ok(())
            }
        }
    }
}
