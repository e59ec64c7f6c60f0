//! Dead letters as messages.

use std::num::NonZeroU32;

use windlass_core::{
    FailureCode, LaneKey, LimitName, Operator, QueueName, TaskName, Tenant, WorkflowName,
};

use super::{
    Wire, WireError, count, limit, name, name_some, parse, parse_all, parse_some, read, read_all,
    read_some, time, v1, version, write_all,
};
use crate::store::{
    DeadLetter, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded, LaneId,
    Pace, Redrive, Redriven, RefusedRun,
};

impl Wire for DeadLetterFilter {
    type Message = v1::DeadLetterFilter;

    fn to_wire(&self) -> v1::DeadLetterFilter {
        v1::DeadLetterFilter {
            run: self.run.map(|run| run.to_string()),
            tenant: self.tenant.as_ref().map(ToString::to_string),
            workflow: self.workflow.as_ref().map(ToString::to_string),
            task: self.task.as_ref().map(ToString::to_string),
            reason: self.reason.as_ref().map(|reason| reason.word().to_owned()),
            since_us: self.since.map(|since| since.as_micros()),
            until_us: self.until.map(|until| until.as_micros()),
        }
    }

    fn from_wire(message: v1::DeadLetterFilter) -> Result<Self, WireError> {
        Ok(DeadLetterFilter {
            run: parse_some("run", message.run)?,
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            workflow: name_some("workflow", message.workflow, WorkflowName::new)?,
            task: name_some("task", message.task, TaskName::new)?,
            reason: message.reason.map(FailureCode::from),
            since: message.since_us.map(time),
            until: message.until_us.map(time),
        })
    }
}

impl Wire for DeadLetterCursor {
    type Message = v1::DeadLetterCursor;

    fn to_wire(&self) -> v1::DeadLetterCursor {
        let failed_at_us = self.failed_at.as_micros();
        v1::DeadLetterCursor { failed_at_us, task: Some(self.task.to_wire()) }
    }

    fn from_wire(message: v1::DeadLetterCursor) -> Result<Self, WireError> {
        let task = read("task", message.task)?;
        Ok(DeadLetterCursor { failed_at: time(message.failed_at_us), task })
    }
}

impl Wire for LaneId {
    type Message = v1::Lane;

    fn to_wire(&self) -> v1::Lane {
        v1::Lane {
            limit: self.limit.to_string(),
            tenant: self.tenant.as_ref().map(ToString::to_string),
            key: self.key.as_ref().map(ToString::to_string),
        }
    }

    fn from_wire(message: v1::Lane) -> Result<Self, WireError> {
        Ok(LaneId {
            limit: name("limit", LimitName::new(&message.limit))?,
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            key: name_some("key", message.key, LaneKey::new)?,
        })
    }
}

impl Wire for DeadLetter {
    type Message = v1::DeadLetter;

    fn to_wire(&self) -> v1::DeadLetter {
        v1::DeadLetter {
            task: Some(self.task.to_wire()),
            name: self.name.to_string(),
            round: self.round,
            tenant: self.tenant.to_string(),
            workflow: self.workflow.to_string(),
            version: self.version.get(),
            queue: self.queue.to_string(),
            failure: Some(self.failure.to_wire()),
            attempts: self.attempts,
            lanes: write_all(&self.lanes),
            failed_at_us: self.failed_at.as_micros(),
        }
    }

    fn from_wire(message: v1::DeadLetter) -> Result<Self, WireError> {
        Ok(DeadLetter {
            task: read("task", message.task)?,
            name: name("name", TaskName::new(&message.name))?,
            round: message.round,
            tenant: name("tenant", Tenant::new(&message.tenant))?,
            workflow: name("workflow", WorkflowName::new(&message.workflow))?,
            version: version(message.version)?,
            queue: name("queue", QueueName::new(&message.queue))?,
            failure: read("failure", message.failure)?,
            attempts: message.attempts,
            lanes: read_all("lanes", message.lanes)?,
            failed_at: time(message.failed_at_us),
        })
    }
}

impl Wire for DeadLetterPage {
    type Message = v1::DeadLetterPage;

    fn to_wire(&self) -> v1::DeadLetterPage {
        let next = self.next.as_ref().map(Wire::to_wire);
        v1::DeadLetterPage { letters: write_all(&self.letters), next }
    }

    fn from_wire(message: v1::DeadLetterPage) -> Result<Self, WireError> {
        let letters = read_all("letters", message.letters)?;
        Ok(DeadLetterPage { letters, next: read_some("next", message.next)? })
    }
}

impl Wire for Pace {
    type Message = v1::Pace;

    fn to_wire(&self) -> v1::Pace {
        let from_us = self.from.map(|from| from.as_micros());
        v1::Pace { per_second: self.per_second.get(), from_us }
    }

    fn from_wire(message: v1::Pace) -> Result<Self, WireError> {
        let per_second = NonZeroU32::new(message.per_second);
        let zero = || WireError::new("per_second", "0 is not at least 1");
        Ok(Pace { per_second: per_second.ok_or_else(zero)?, from: message.from_us.map(time) })
    }
}

impl Wire for Redrive {
    type Message = v1::RedriveRequest;

    fn to_wire(&self) -> v1::RedriveRequest {
        v1::RedriveRequest {
            id: self.id.to_string(),
            by: self.by.name.to_string(),
            filter: Some(self.filter.to_wire()),
            after: self.after.as_ref().map(Wire::to_wire),
            limit: limit(self.limit),
            pace: self.pace.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: v1::RedriveRequest) -> Result<Self, WireError> {
        Ok(Redrive {
            id: parse("id", &message.id)?,
            by: name("by", Operator::new(&message.by))?.into(),
            filter: read("filter", message.filter)?,
            after: read_some("after", message.after)?,
            limit: message.limit as usize,
            pace: read_some("pace", message.pace)?,
        })
    }
}

impl Wire for RefusedRun {
    type Message = v1::RefusedRun;

    fn to_wire(&self) -> v1::RefusedRun {
        v1::RefusedRun { run: self.run.to_string(), why: self.why.clone() }
    }

    fn from_wire(message: v1::RefusedRun) -> Result<Self, WireError> {
        Ok(RefusedRun { run: parse("run", &message.run)?, why: message.why })
    }
}

impl Wire for Redriven {
    type Message = v1::RedriveReply;

    fn to_wire(&self) -> v1::RedriveReply {
        v1::RedriveReply {
            runs: self.runs.iter().map(ToString::to_string).collect(),
            refused: write_all(&self.refused),
            next: self.next.as_ref().map(Wire::to_wire),
            due_us: self.due.map(|due| due.as_micros()),
        }
    }

    fn from_wire(message: v1::RedriveReply) -> Result<Self, WireError> {
        Ok(Redriven {
            runs: parse_all("runs", &message.runs)?,
            refused: read_all("refused", message.refused)?,
            next: read_some("next", message.next)?,
            due: message.due_us.map(time),
        })
    }
}

impl Wire for Discard {
    type Message = v1::DiscardRequest;

    fn to_wire(&self) -> v1::DiscardRequest {
        v1::DiscardRequest {
            id: self.id.to_string(),
            by: self.by.name.to_string(),
            filter: Some(self.filter.to_wire()),
            after: self.after.as_ref().map(Wire::to_wire),
            limit: limit(self.limit),
        }
    }

    fn from_wire(message: v1::DiscardRequest) -> Result<Self, WireError> {
        Ok(Discard {
            id: parse("id", &message.id)?,
            by: name("by", Operator::new(&message.by))?.into(),
            filter: read("filter", message.filter)?,
            after: read_some("after", message.after)?,
            limit: message.limit as usize,
        })
    }
}

impl Wire for Discarded {
    type Message = v1::DiscardReply;

    fn to_wire(&self) -> v1::DiscardReply {
        v1::DiscardReply {
            letters: self.letters as u64,
            runs: self.runs.iter().map(ToString::to_string).collect(),
            refused: write_all(&self.refused),
            next: self.next.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: v1::DiscardReply) -> Result<Self, WireError> {
        Ok(Discarded {
            letters: count(message.letters),
            runs: parse_all("runs", &message.runs)?,
            refused: read_all("refused", message.refused)?,
            next: read_some("next", message.next)?,
        })
    }
}
