//! Why a run does not go on: what is read of it.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use windlass_core::why::{
    CALLS_SHOWN_MAX, COUNT_MAX, Count, DutyFacts, Facts, HeldFacts, LaneFacts, LaneHolder,
    OpenCall, PARENTS_MAX, ParentFacts, QueueFacts, RunFacts, SHOWN_MAX, TaskFacts, TaskPlace,
    WORKERS_MAX, WorkerFacts,
};
use windlass_core::{
    EventBody, RunEventKind, RunId, RunState, StepRecord, TaskEventKind, TaskId, TaskIndex,
    TaskName, TaskState, Timestamp, Why, WorkerId,
};

use super::queue::{Place, ReadyQueues};
use super::run::{Run, Task};
use super::state::State;
use crate::store::{Duty, LeaderRecord, StoreError, TENANT_METADATA, WorkerState};

impl State {
    pub(super) fn why(
        &self,
        run: RunId,
        name: Option<&TaskName>,
    ) -> Result<Option<Why>, StoreError> {
        let Some(run) = self.runs.get(&run) else { return Ok(None) };
        let (indices, has_more_tasks) = match name {
            None => run.worth_telling(),
            Some(name) => match run.definition.index_of(name.as_str()) {
                None => return Ok(None),
                Some(index) => (vec![index], false),
            },
        };
        let tasks: Result<Vec<TaskFacts>, StoreError> =
            indices.into_iter().map(|index| self.task_facts(run, index)).collect();
        let facts = Facts {
            at: self.shared.now,
            run: run.facts(),
            tasks: tasks?,
            has_more_tasks,
            workers: self.worker_facts(run),
            promote: self.duty_facts(Duty::PromoteDue),
            reap: self.duty_facts(Duty::Reap),
        };
        Ok(Some(facts.why()))
    }

    fn task_facts(&self, run: &Run, index: TaskIndex) -> Result<TaskFacts, StoreError> {
        let task = &run.tasks[index.as_usize()];
        let id = run.task_id(index);
        let corrupt = |what: &str| StoreError::Corrupt(format!("task {id} {what}"));
        let place = match task.state {
            TaskState::Pending => TaskPlace::Behind(run.parent_facts(index)),
            TaskState::Scheduled => {
                let due = task.due.ok_or_else(|| corrupt("is scheduled for no time"))?;
                TaskPlace::Until(due.at, self.open_calls(run, id, task))
            }
            TaskState::Waiting => match self.lane_facts(id) {
                Some(lane) => TaskPlace::Lane(lane),
                None => TaskPlace::Parked(self.open_calls(run, id, task)),
            },
            TaskState::Ready => {
                let place = task.place.as_ref().ok_or_else(|| corrupt("is ready and nowhere"))?;
                TaskPlace::Queue(self.shared.ready.facts(place))
            }
            TaskState::Running => {
                let held = self.held_facts(run, id, task);
                TaskPlace::Held(held.ok_or_else(|| corrupt("is running and nobody's"))?)
            }
            TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Cancelled
            | TaskState::Skipped => TaskPlace::Ended,
        };
        Ok(TaskFacts {
            index,
            spec: run.definition.task(index).clone(),
            state: task.state,
            attempt: task.attempt,
            failure: task.failure.clone(),
            place,
        })
    }

    /// Where a task stands in a lane, if it waits for a slot there.
    fn lane_facts(&self, id: TaskId) -> Option<LaneFacts> {
        let lanes = &self.shared.lanes;
        let entrant = lanes.entrants.get(&id)?;
        let seq = *entrant.places.last()?;
        let need = entrant.needs.get(entrant.places.len() - 1)?;
        let is_out = entrant.is_out;
        let lane = lanes.lanes.get(&need.lane).cloned().unwrap_or_default();
        if !is_out && seq <= lane.served {
            return None;
        }
        let before = lane.waiting.iter().filter(|waiter| waiter.seq < seq).count();
        let place = |(task, entrant): (&TaskId, &windlass_core::lane::Entrant)| {
            let mut places = entrant.needs.iter().zip(&entrant.places);
            let (_, place) = places.find(|(other, _)| other.lane == need.lane)?;
            let waits = entrant.is_out && entrant.places.last() == Some(place);
            (*place <= lane.served && !waits).then_some((*place, *task))
        };
        let mut holders: Vec<(u64, TaskId)> = lanes.entrants.iter().filter_map(place).collect();
        holders.sort_unstable();
        let holder = |(_, task): (u64, TaskId)| {
            let run = self.runs.get(&task.run)?;
            Some(LaneHolder { run: run.id, task: run.definition.task(task.index).name.clone() })
        };
        Some(LaneFacts {
            limit: need.lane.limit.clone(),
            key: need.lane.key.clone(),
            bound: need.bound,
            meter: lane.meter,
            is_out,
            held: lane.held,
            before: Count::new(before as u64),
            holders: holders.into_iter().take(SHOWN_MAX).filter_map(holder).collect(),
        })
    }

    fn open_calls(&self, run: &Run, id: TaskId, task: &Task) -> Vec<OpenCall> {
        let mut open: Vec<&StepRecord> =
            task.steps.values().filter(|step| step.number().is_none()).collect();
        open.sort_by_key(|step| (step.due().unwrap_or(Timestamp::MAX), step.call));
        let call = |step: &StepRecord| {
            let open: Vec<RunId> = self.open_in_order(id, step.call).collect();
            let mailbox = step.key.clone().map(|key| run.mailbox(key, step.name.clone()));
            let has_signal =
                mailbox.is_some_and(|mailbox| self.shared.mailboxes.is_told(id, &mailbox));
            OpenCall {
                step: step.clone(),
                has_signal,
                open_children: Count::new(open.len() as u64),
                first_children: open.into_iter().take(SHOWN_MAX).collect(),
            }
        };
        open.into_iter().take(CALLS_SHOWN_MAX).map(call).collect()
    }

    fn held_facts(&self, run: &Run, id: TaskId, task: &Task) -> Option<HeldFacts> {
        let worker = task.holder?;
        let (row, record) = (self.shared.workers.get(&worker)?, self.shared.registry.get(&worker)?);
        let own = |(at, task, fence): &(Timestamp, TaskId, _)| {
            (*task == id && *fence == run.tasks[id.index.as_usize()].fence).then_some(*at)
        };
        let take_back = self.shared.take_backs.iter().find_map(own);
        Some(HeldFacts {
            worker,
            worker_name: record.name.clone(),
            since: run.started_at(id.index),
            lease_until: take_back.map_or(row.lease_until, |at| at.min(row.lease_until)),
            is_dying: row.is_dead,
            progress: task.note.clone(),
        })
    }

    fn worker_facts(&self, run: &Run) -> Vec<WorkerFacts> {
        let facts = |(id, worker): (_, &super::state::Worker)| {
            let record = self.shared.registry.get(id)?;
            let keys = record.workflows.iter();
            Some(WorkerFacts {
                id: *id,
                name: record.name.clone(),
                is_dying: worker.is_dead,
                is_draining: record.state == WorkerState::Draining,
                slots: record.slots,
                tasks: worker.tasks.len() as u64,
                lease_until: worker.lease_until,
                queues: record.info.queues.clone(),
                workflows: keys.map(|key| (key.workflow.clone(), key.version)).collect(),
            })
        };
        let serves_tenant = |(id, _): &(&WorkerId, &super::state::Worker)| {
            let record = self.shared.registry.get(id);
            let own = record.and_then(|record| record.info.metadata.get(TENANT_METADATA));
            own.is_none_or(|own| own == run.tenant.as_str())
        };
        let serving = self.shared.workers.iter().filter(serves_tenant);
        let mut workers: Vec<WorkerFacts> = serving.filter_map(facts).collect();
        let name = run.definition.name();
        workers.sort_by_key(|worker| {
            let serves_workflow = worker.workflows.iter().any(|(workflow, _)| workflow == name);
            (Reverse(serves_workflow), Reverse(worker.lease_until), worker.id)
        });
        workers.truncate(WORKERS_MAX);
        workers
    }

    fn duty_facts(&self, duty: Duty) -> DutyFacts {
        let leader = self.leaders.iter().find(|leader| leader.duty == duty);
        leader.map_or_else(|| LeaderRecord::vacant(duty).facts(), LeaderRecord::facts)
    }
}

impl Run {
    fn facts(&self) -> RunFacts {
        let record = self.record();
        let trace = record.trace();
        RunFacts {
            id: record.id,
            workflow: record.workflow,
            version: record.version,
            tenant: record.tenant,
            state: record.state,
            ended_at: record.ended_at,
            open_tasks: record.open_tasks,
            cancelled_for: self.cancelled_for(),
            is_staged: false,
            trace,
        }
    }

    /// The tasks that tell why the run does not go on, and whether there are more of them.
    fn worth_telling(&self) -> (Vec<TaskIndex>, bool) {
        let is_worth = |index: &TaskIndex| {
            let state = self.tasks[index.as_usize()].state;
            match self.state {
                RunState::Running => !state.is_final() && state != TaskState::Pending,
                RunState::Failed | RunState::Cancelled => state == TaskState::Failed,
                RunState::Succeeded => false,
            }
        };
        let mut worth: Vec<TaskIndex> =
            self.definition.indices().filter(is_worth).take(SHOWN_MAX + 1).collect();
        let has_more = worth.len() > SHOWN_MAX;
        worth.truncate(SHOWN_MAX);
        (worth, has_more)
    }

    fn parent_facts(&self, index: TaskIndex) -> ParentFacts {
        let parents = self.definition.task(index).parents.iter().take(PARENTS_MAX);
        let open = parents.filter(|parent| !self.tasks[parent.as_usize()].state.is_final());
        let first = open.take(SHOWN_MAX).map(|open| self.definition.task(*open).name.clone());
        ParentFacts { pending: self.progress.parents(index).pending, first: first.collect() }
    }

    /// The reason that was given when it was cancelled, if it is.
    fn cancelled_for(&self) -> Option<String> {
        let reason = |event: &windlass_core::Event| match &event.body {
            EventBody::Run(run) => match &run.kind {
                RunEventKind::Cancelled { reason } => Some(reason.clone()),
                RunEventKind::Started
                | RunEventKind::Ended
                | RunEventKind::Retried { .. }
                | RunEventKind::Continued { .. }
                | RunEventKind::Undoing { .. } => None,
            },
            EventBody::Task(_) => None,
        };
        self.events.iter().rev().find_map(reason).flatten()
    }

    /// When a task was last claimed.
    fn started_at(&self, index: TaskIndex) -> Option<Timestamp> {
        let is_start = |event: &&windlass_core::Event| match &event.body {
            EventBody::Task(task) => {
                task.task == index && matches!(task.kind, TaskEventKind::Started { .. })
            }
            EventBody::Run(_) => false,
        };
        self.events.iter().rev().find(is_start).map(|event| event.at)
    }
}

impl ReadyQueues {
    /// How many stand before a place.
    fn facts(&self, place: &Place) -> QueueFacts {
        let (mut own, mut all) = (0, 0);
        let _ = self.before(place, |tenant_is_own| {
            own += u64::from(tenant_is_own);
            all += 1;
            match own > COUNT_MAX && all > COUNT_MAX {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let priority = place.priority;
        let bucket = place.station.bucket;
        QueueFacts { priority, own_before: Count::new(own), all_before: Count::new(all), bucket }
    }
}
