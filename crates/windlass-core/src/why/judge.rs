//! What follows from the facts.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::definition::TaskKind;
use crate::lane::Bound;
use crate::ring::Bucket;
use crate::state::{RunState, TaskState};
use crate::step::{StepKind, StepState};
use crate::time::Timestamp;

use super::facts::{
    DutyFacts, Facts, HeldFacts, LaneFacts, OpenCall, ParentFacts, QueueFacts, TaskFacts,
    TaskPlace, WorkerFacts,
};
use super::{Missing, Reason, SHOWN_MAX, SILENT_MAX, Served, TaskWhy, TimeCause, Why};

impl Facts {
    /// Judges them.
    pub fn why(self) -> Why {
        let mut reasons = Vec::new();
        if self.run.is_staged && self.run.state == RunState::Running {
            reasons.push(Reason::Staged);
            reasons.extend(self.promote.vacancy(self.at));
        }
        if self.run.state == RunState::Cancelled {
            reasons.push(Reason::Cancelled { why: self.run.cancelled_for.clone() });
        }
        let tasks = self.tasks.iter().map(|task| self.judge(task)).collect();
        let run = self.run;
        Why {
            at: self.at,
            run: run.id,
            workflow: run.workflow,
            version: run.version,
            tenant: run.tenant,
            state: run.state,
            ended_at: run.ended_at,
            open_tasks: run.open_tasks,
            trace: run.trace,
            reasons,
            tasks,
            has_more_tasks: self.has_more_tasks,
        }
    }

    fn judge(&self, task: &TaskFacts) -> TaskWhy {
        let reasons = match &task.place {
            TaskPlace::Ended => vec![self.end(task)],
            TaskPlace::Behind(parents) => self.pending(task, parents),
            TaskPlace::Until(until, calls) => self.scheduled(task, *until, calls),
            TaskPlace::Queue(queue) => vec![self.ready(task, queue)],
            TaskPlace::Lane(lane) => self.lane(lane),
            TaskPlace::Parked(calls) => self.parked(calls),
            TaskPlace::Held(held) => self.running(held),
        };
        TaskWhy {
            name: task.spec.name.clone(),
            state: task.state,
            attempt: task.attempt,
            max_attempts: task.spec.retry.max_attempts(),
            reasons,
        }
    }

    fn end(&self, task: &TaskFacts) -> Reason {
        match task.state {
            TaskState::Failed => Reason::Failed { failure: task.failure.clone() },
            TaskState::Pending
            | TaskState::Scheduled
            | TaskState::Waiting
            | TaskState::Ready
            | TaskState::Running
            | TaskState::Succeeded
            | TaskState::Cancelled
            | TaskState::Skipped => Reason::Ended,
        }
    }

    fn pending(&self, task: &TaskFacts, parents: &ParentFacts) -> Vec<Reason> {
        if self.run.is_staged {
            let mut reasons = vec![Reason::Staged];
            reasons.extend(self.promote.vacancy(self.at));
            return reasons;
        }
        let ParentFacts { pending, first } = parents.clone();
        vec![match task.spec.kind {
            TaskKind::OnFailure => Reason::RestOfRun { open: self.run.open_tasks },
            TaskKind::Handler | TaskKind::Sleep(_) => Reason::Parents { pending, first },
        }]
    }

    /// It waits for a time, whatever it waits for besides.
    fn timed(&self, until: Timestamp, cause: TimeCause) -> Reason {
        match until <= self.at {
            true => Reason::Due { since: until, cause },
            false => Reason::Time { until, cause },
        }
    }

    fn scheduled(&self, task: &TaskFacts, until: Timestamp, calls: &[OpenCall]) -> Vec<Reason> {
        // Whoever parks has all attempts left, and is due when the first of its calls is.
        let is_parked = task.attempt == 0 && calls.iter().any(|it| it.step.due() == Some(until));
        if is_parked {
            return self.parked(calls);
        }
        let cause = match (task.spec.kind, &task.failure) {
            (TaskKind::Sleep(_), _) => TimeCause::Sleep,
            (TaskKind::Handler | TaskKind::OnFailure, Some(failure)) if task.attempt > 0 => {
                TimeCause::Backoff { failure: failure.clone() }
            }
            (TaskKind::Handler | TaskKind::OnFailure, _) => TimeCause::Delay,
        };
        let mut reasons = vec![self.timed(until, cause)];
        reasons.extend(self.promote.vacancy(self.at));
        reasons
    }

    fn parked(&self, calls: &[OpenCall]) -> Vec<Reason> {
        if calls.is_empty() {
            return vec![Reason::Parked];
        }
        let mut reasons: Vec<Reason> = calls.iter().map(|call| self.call(call)).collect();
        // A signal to the run lets it go on at once; all else is found by a sweep.
        let is_at_once =
            |reason: &Reason| matches!(reason, Reason::Signal { key: None, until: None, .. });
        if !reasons.iter().all(is_at_once) {
            reasons.extend(self.promote.vacancy(self.at));
        }
        reasons
    }

    fn lane(&self, lane: &LaneFacts) -> Vec<Reason> {
        let LaneFacts { limit, key, bound, meter, is_out, held, before, holders } = lane.clone();
        let (reason, is_for_sweep) = match bound {
            _ if is_out => (Reason::Superseded { limit, key }, true),
            Bound::Slots(slots) => {
                // A slot is free and it is the first: the next sweep gives it the slot.
                let is_next = held < slots && before.at_least == 0;
                (Reason::Lane { limit, key, slots, held, before, holders }, is_next)
            }
            Bound::Rate(rate) => {
                let until = rate.due_behind(meter, before.at_least).filter(|_| !before.is_more);
                (Reason::Rate { limit, key, before, until }, true)
            }
            Bound::Debounce(_) => {
                let until = bound.due(meter).unwrap_or(self.at);
                (Reason::Quiet { limit, key, until }, true)
            }
            Bound::Breaker(_) => {
                (Reason::Breaker { limit, key, before, until: bound.due(meter) }, true)
            }
        };
        let mut reasons = vec![reason];
        if is_for_sweep {
            reasons.extend(self.promote.vacancy(self.at));
        }
        reasons
    }

    fn call(&self, open: &OpenCall) -> Reason {
        let step = &open.step;
        let (call, name, until) = (step.call, step.name.clone(), step.due());
        match step.kind {
            StepKind::Signal => {
                let (key, has_come) = (step.key.clone(), open.has_signal);
                Reason::Signal { call, name, key, until, has_come }
            }
            StepKind::Child => Reason::Children {
                call,
                name,
                open: open.open_children,
                goes_on_at: step.children_max().unwrap_or_default(),
                first: open.first_children.clone(),
            },
            StepKind::Step
            | StepKind::Undoable
            | StepKind::Sleep
            | StepKind::Time
            | StepKind::Patch
            | StepKind::Input => {
                let (failures, failure) = match &step.state {
                    StepState::Open { failures, failure, .. } => (*failures, failure.clone()),
                    StepState::Done { .. } => (0, None),
                };
                let cause = TimeCause::Call { call, name, failures, failure };
                self.timed(until.unwrap_or(Timestamp::MAX), cause)
            }
        }
    }

    fn ready(&self, task: &TaskFacts, queue: &QueueFacts) -> Reason {
        Reason::Ready {
            queue: task.spec.queue.clone(),
            priority: queue.priority,
            own_before: queue.own_before,
            all_before: queue.all_before,
            served: self.served(task, queue.bucket),
        }
    }

    fn served(&self, task: &TaskFacts, bucket: Option<Bucket>) -> Served {
        let (queue, run) = (&task.spec.queue, &self.run);
        let live = || self.workers.iter().filter(|worker| worker.is_live(self.at));
        let at_queue = || live().filter(|worker| worker.queues.contains(queue));
        let key = (run.workflow.clone(), run.version);
        let serving: Vec<_> = at_queue().filter(|worker| worker.workflows.contains(&key)).collect();
        if serving.is_empty() {
            let missing = if live().next().is_none() {
                Missing::Worker
            } else if at_queue().next().is_none() {
                Missing::Queue { served: first(live().flat_map(|it| it.queues.iter().cloned())) }
            } else {
                let known = || at_queue().flat_map(|worker| worker.workflows.iter().cloned());
                let versions = known().filter(|(workflow, _)| *workflow == run.workflow);
                match first(versions.map(|(_, version)| version)) {
                    served if served.is_empty() => {
                        Missing::Workflow { served: first(known().map(|(workflow, _)| workflow)) }
                    }
                    served => Missing::Version { served },
                }
            };
            return Served::Nobody { missing };
        }
        let (draining, claiming): (Vec<_>, Vec<_>) =
            serving.into_iter().partition(|worker| worker.is_draining);
        let free = |worker: &&WorkerFacts| u64::from(worker.slots).saturating_sub(worker.tasks);
        let is_there = |worker: &&&WorkerFacts| worker.lease_until > self.at;
        let owners = || claiming.iter().filter(is_there).map(|worker| worker.id);
        let owner = bucket.and_then(|bucket| bucket.owner(owners()));
        if let Some(owner) = claiming.iter().find(|worker| Some(worker.id) == owner) {
            let (worker, worker_name) = (owner.id, owner.name.clone());
            return Served::Owner { worker, worker_name, free_slots: free(owner) };
        }
        let free_slots: u64 = claiming.iter().map(free).sum();
        let count = |workers: &[&WorkerFacts]| u32::try_from(workers.len()).unwrap_or(u32::MAX);
        match free_slots {
            0 => Served::Busy { workers: count(&claiming), draining: count(&draining) },
            free_slots => Served::Free { workers: count(&claiming), free_slots },
        }
    }

    fn running(&self, held: &HeldFacts) -> Vec<Reason> {
        let HeldFacts { worker, worker_name, since, lease_until, is_dying, progress } =
            held.clone();
        if !is_dying && lease_until > self.at {
            return vec![Reason::Running { worker, worker_name, since, lease_until, progress }];
        }
        let since = lease_until.min(self.at);
        let mut reasons = vec![Reason::LeaseExpired { worker, worker_name, since }];
        reasons.extend(self.reap.vacancy(self.at));
        reasons
    }
}

/// The first of some names, each once.
fn first<T: Ord>(names: impl Iterator<Item = T>) -> Vec<T> {
    names.collect::<BTreeSet<T>>().into_iter().take(SHOWN_MAX).collect()
}

impl WorkerFacts {
    /// Whether a claim of it would be answered with tasks, and it may be there to make one.
    fn is_live(&self, at: Timestamp) -> bool {
        let silent = if self.tasks == 0 { SILENT_MAX } else { Duration::ZERO };
        !self.is_dying && self.lease_until + silent > at
    }
}

impl DutyFacts {
    /// That nobody does it, if so.
    fn vacancy(&self, at: Timestamp) -> Option<Reason> {
        let leads = |(_, until): &(String, Timestamp)| !self.is_given_up && *until > at;
        if self.leader.as_ref().is_some_and(leads) {
            return None;
        }
        let (last, until) = self.leader.clone().unzip();
        Some(Reason::NoLeader { duty: self.duty.clone(), last, until })
    }
}
