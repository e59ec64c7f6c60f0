//! What people and monitors watch: workers, leaders and queues, as messages.

use std::time::Duration;

use windlass_core::{QueueName, Term};

use super::{
    Wire, WireError, limit, micros, name, parse, priority, read_all, read_some, time, unknown, v1,
    write_all,
};
use crate::store::{
    Duty, Holder, LeaderRecord, QueueList, QueueRecord, WorkerCursor, WorkerFilter, WorkerInfo,
    WorkerPage, WorkerRecord, WorkerState,
};

impl Wire for WorkerState {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let state = match self {
            WorkerState::Live => v1::WorkerState::Live,
            WorkerState::Draining => v1::WorkerState::Draining,
            WorkerState::Dying => v1::WorkerState::Dying,
            WorkerState::Dead => v1::WorkerState::Dead,
        };
        state.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::WorkerState::try_from(number) {
            Ok(v1::WorkerState::Live) => Ok(WorkerState::Live),
            Ok(v1::WorkerState::Draining) => Ok(WorkerState::Draining),
            Ok(v1::WorkerState::Dying) => Ok(WorkerState::Dying),
            Ok(v1::WorkerState::Dead) => Ok(WorkerState::Dead),
            Ok(v1::WorkerState::Unspecified) | Err(_) => Err(unknown("state", number)),
        }
    }
}

impl Wire for WorkerRecord {
    type Message = v1::Worker;

    fn to_wire(&self) -> v1::Worker {
        v1::Worker {
            id: self.id.to_string(),
            name: self.name.clone(),
            state: self.state.to_wire(),
            slots: self.slots,
            lease_us: micros(self.lease),
            workflows: write_all(&self.workflows),
            queues: self.info.queues.iter().map(ToString::to_string).collect(),
            host: self.info.host.clone(),
            pid: self.info.pid,
            version: self.info.version.clone(),
            labels: self.info.metadata.clone().into_iter().collect(),
            joined_at_us: self.joined_at.as_micros(),
            seen_at_us: self.seen_at.map(|at| at.as_micros()),
            ended_at_us: self.ended_at.map(|at| at.as_micros()),
            tasks: self.tasks,
        }
    }

    fn from_wire(message: v1::Worker) -> Result<Self, WireError> {
        let queues = message.queues.iter().map(QueueName::new).collect::<Result<_, _>>();
        Ok(WorkerRecord {
            id: parse("id", &message.id)?,
            name: message.name,
            state: WorkerState::from_wire(message.state)?,
            slots: message.slots,
            lease: Duration::from_micros(message.lease_us),
            workflows: read_all("workflows", message.workflows)?,
            info: WorkerInfo {
                host: message.host,
                pid: message.pid,
                version: message.version,
                queues: name("queues", queues)?,
                metadata: message.labels.into_iter().collect(),
            },
            joined_at: time(message.joined_at_us),
            seen_at: message.seen_at_us.map(time),
            ended_at: message.ended_at_us.map(time),
            tasks: message.tasks,
        })
    }
}

impl Wire for WorkerFilter {
    type Message = v1::ListWorkersRequest;

    fn to_wire(&self) -> v1::ListWorkersRequest {
        v1::ListWorkersRequest {
            with_dead: self.with_dead,
            after: self.after.as_ref().map(Wire::to_wire),
            limit: limit(self.limit),
        }
    }

    fn from_wire(message: v1::ListWorkersRequest) -> Result<Self, WireError> {
        Ok(WorkerFilter {
            with_dead: message.with_dead,
            after: read_some("after", message.after)?,
            limit: message.limit as usize,
        })
    }
}

impl Wire for WorkerCursor {
    type Message = v1::WorkerCursor;

    fn to_wire(&self) -> v1::WorkerCursor {
        v1::WorkerCursor { joined_at_us: self.joined_at.as_micros(), id: self.id.to_string() }
    }

    fn from_wire(message: v1::WorkerCursor) -> Result<Self, WireError> {
        Ok(WorkerCursor { joined_at: time(message.joined_at_us), id: parse("id", &message.id)? })
    }
}

impl Wire for WorkerPage {
    type Message = v1::WorkerPage;

    fn to_wire(&self) -> v1::WorkerPage {
        let next = self.next.as_ref().map(Wire::to_wire);
        v1::WorkerPage { workers: write_all(&self.workers), next }
    }

    fn from_wire(message: v1::WorkerPage) -> Result<Self, WireError> {
        let workers = read_all("workers", message.workers)?;
        Ok(WorkerPage { workers, next: read_some("next", message.next)? })
    }
}

impl Wire for Duty {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let duty = match self {
            Duty::PromoteDue => v1::BackgroundDuty::PromoteDue,
            Duty::Reap => v1::BackgroundDuty::Reap,
            Duty::Prune => v1::BackgroundDuty::Prune,
            Duty::Schedules => v1::BackgroundDuty::Schedules,
            Duty::Rollup => v1::BackgroundDuty::Rollup,
            Duty::Audit => v1::BackgroundDuty::Audit,
        };
        duty.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::BackgroundDuty::try_from(number) {
            Ok(v1::BackgroundDuty::PromoteDue) => Ok(Duty::PromoteDue),
            Ok(v1::BackgroundDuty::Reap) => Ok(Duty::Reap),
            Ok(v1::BackgroundDuty::Prune) => Ok(Duty::Prune),
            Ok(v1::BackgroundDuty::Schedules) => Ok(Duty::Schedules),
            Ok(v1::BackgroundDuty::Rollup) => Ok(Duty::Rollup),
            Ok(v1::BackgroundDuty::Audit) => Ok(Duty::Audit),
            Ok(v1::BackgroundDuty::Unspecified) | Err(_) => Err(unknown("duty", number)),
        }
    }
}

impl Wire for Holder {
    type Message = v1::LeaderHolder;

    fn to_wire(&self) -> v1::LeaderHolder {
        v1::LeaderHolder {
            candidate: self.candidate.to_string(),
            name: self.name.clone(),
            since_us: self.since.as_micros(),
            renewed_at_us: self.renewed_at.as_micros(),
            until_us: self.until.as_micros(),
            rotates_at_us: self.rotates_at.map(|at| at.as_micros()),
            is_given_up: self.is_given_up,
        }
    }

    fn from_wire(message: v1::LeaderHolder) -> Result<Self, WireError> {
        Ok(Holder {
            candidate: parse("candidate", &message.candidate)?,
            name: message.name,
            since: time(message.since_us),
            renewed_at: time(message.renewed_at_us),
            until: time(message.until_us),
            rotates_at: message.rotates_at_us.map(time),
            is_given_up: message.is_given_up,
        })
    }
}

impl Wire for LeaderRecord {
    type Message = v1::Leader;

    fn to_wire(&self) -> v1::Leader {
        v1::Leader {
            duty: self.duty.to_wire(),
            term: self.term.0,
            holder: self.holder.as_ref().map(Wire::to_wire),
            runs: self.runs,
            items: self.items,
            errors: self.errors,
            last_run_at_us: self.last_run_at.map(|at| at.as_micros()),
            busy_us: micros(self.busy),
            last_took_us: self.last_took.map(micros),
            last_error: self.last_error.clone(),
        }
    }

    fn from_wire(message: v1::Leader) -> Result<Self, WireError> {
        Ok(LeaderRecord {
            duty: Duty::from_wire(message.duty)?,
            term: Term(message.term),
            holder: read_some("holder", message.holder)?,
            runs: message.runs,
            items: message.items,
            errors: message.errors,
            last_run_at: message.last_run_at_us.map(time),
            busy: Duration::from_micros(message.busy_us),
            last_took: message.last_took_us.map(Duration::from_micros),
            last_error: message.last_error,
        })
    }
}

impl Wire for QueueRecord {
    type Message = v1::Queue;

    fn to_wire(&self) -> v1::Queue {
        v1::Queue {
            queue: self.queue.to_string(),
            priority: self.priority.get().into(),
            came: self.came,
            went: self.went,
            changed_at_us: self.changed_at.as_micros(),
            oldest_at_us: self.oldest_at.map(|at| at.as_micros()),
        }
    }

    fn from_wire(message: v1::Queue) -> Result<Self, WireError> {
        Ok(QueueRecord {
            queue: name("queue", QueueName::new(&message.queue))?,
            priority: priority(message.priority)?,
            came: message.came,
            went: message.went,
            changed_at: time(message.changed_at_us),
            oldest_at: message.oldest_at_us.map(time),
        })
    }
}

impl Wire for QueueList {
    type Message = v1::QueueList;

    fn to_wire(&self) -> v1::QueueList {
        v1::QueueList {
            at_us: self.at.as_micros(),
            counted_at_us: self.counted_at.map(|at| at.as_micros()),
            queues: write_all(&self.queues),
        }
    }

    fn from_wire(message: v1::QueueList) -> Result<Self, WireError> {
        Ok(QueueList {
            at: time(message.at_us),
            counted_at: message.counted_at_us.map(time),
            queues: read_all("queues", message.queues)?,
        })
    }
}
