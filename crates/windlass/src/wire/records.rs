//! Runs, their tasks and signals to them, as messages.

use std::time::Duration;

use windlass_core::{
    Fence, IdempotencyKey, RunState, SignalKey, StepName, TaskIndex, TaskName, TaskState, Tenant,
    WorkflowName,
};

use super::{
    Wire, WireError, json, json_or_null, json_some, limit, micros, name, name_some, parse,
    parse_some, priority, read, read_all, read_some, required, tenant, text, time, v1, version,
    write_all,
};
use crate::store::{
    Mailbox, NewKeySignal, NewSignal, RunCursor, RunFilter, RunPage, RunRecord, SIGNAL_KEPT,
    Started, StoreError, TaskRecord,
};

/// The answer to one start of a batch.
impl Wire for Result<Started, StoreError> {
    type Message = v1::StartAnswer;

    fn to_wire(&self) -> v1::StartAnswer {
        let answer = match self {
            Ok(started) => v1::start_answer::Answer::Started(started.to_wire()),
            Err(error) => v1::start_answer::Answer::Error(error.to_wire()),
        };
        v1::StartAnswer { answer: Some(answer) }
    }

    fn from_wire(message: v1::StartAnswer) -> Result<Self, WireError> {
        Ok(match required("answer", message.answer)? {
            v1::start_answer::Answer::Started(started) => Ok(read("started", Some(started))?),
            v1::start_answer::Answer::Error(error) => Err(read("error", Some(error))?),
        })
    }
}

impl Wire for RunRecord {
    type Message = v1::Run;

    fn to_wire(&self) -> v1::Run {
        v1::Run {
            id: self.id.to_string(),
            workflow: self.workflow.to_string(),
            version: self.version.get(),
            tenant: self.tenant.to_string(),
            state: self.state.to_wire(),
            // A client of the version before fails on an empty text.
            input: self.input.as_ref().map_or_else(|| "null".to_owned(), text),
            is_input_omitted: self.input.is_none(),
            key: self.key.as_ref().map(ToString::to_string),
            priority: self.priority.get().into(),
            metadata: self.metadata.clone().into_iter().collect(),
            round: self.round,
            open_tasks: self.open_tasks,
            created_at_us: self.created_at.as_micros(),
            ended_at_us: self.ended_at.map(|at| at.as_micros()),
        }
    }

    fn from_wire(message: v1::Run) -> Result<Self, WireError> {
        Ok(RunRecord {
            id: parse("id", &message.id)?,
            workflow: name("workflow", WorkflowName::new(&message.workflow))?,
            version: version(message.version)?,
            tenant: name("tenant", Tenant::new(&message.tenant))?,
            state: RunState::from_wire(message.state)?,
            input: match message.is_input_omitted {
                true => None,
                false => Some(json("input", message.input)?),
            },
            key: name_some("key", message.key, IdempotencyKey::new)?,
            priority: priority(message.priority)?,
            metadata: message.metadata.into_iter().collect(),
            round: message.round,
            open_tasks: message.open_tasks,
            created_at: time(message.created_at_us),
            ended_at: message.ended_at_us.map(time),
        })
    }
}

impl Wire for RunFilter {
    type Message = v1::ListRunsRequest;

    fn to_wire(&self) -> v1::ListRunsRequest {
        let pair =
            |(key, value): &(String, String)| v1::Pair { key: key.clone(), value: value.clone() };
        v1::ListRunsRequest {
            workflow: self.workflow.as_ref().map(ToString::to_string),
            tenant: self.tenant.as_ref().map(ToString::to_string),
            state: self.state.map_or(v1::RunState::Unspecified.into(), |state| state.to_wire()),
            metadata: self.metadata.as_ref().map(pair),
            after: self.after.as_ref().map(Wire::to_wire),
            limit: limit(self.limit),
        }
    }

    fn from_wire(message: v1::ListRunsRequest) -> Result<Self, WireError> {
        Ok(RunFilter {
            workflow: name_some("workflow", message.workflow, WorkflowName::new)?,
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            state: state_some(message.state)?,
            metadata: message.metadata.map(|pair| (pair.key, pair.value)),
            after: read_some("after", message.after)?,
            limit: message.limit as usize,
        })
    }
}

/// The state of a run, if one is said.
pub(super) fn state_some(number: i32) -> Result<Option<RunState>, WireError> {
    if number == i32::from(v1::RunState::Unspecified) {
        return Ok(None);
    }
    RunState::from_wire(number).map(Some)
}

impl Wire for RunCursor {
    type Message = v1::RunCursor;

    fn to_wire(&self) -> v1::RunCursor {
        v1::RunCursor { created_at_us: self.created_at.as_micros(), id: self.id.to_string() }
    }

    fn from_wire(message: v1::RunCursor) -> Result<Self, WireError> {
        Ok(RunCursor { created_at: time(message.created_at_us), id: parse("id", &message.id)? })
    }
}

impl Wire for RunPage {
    type Message = v1::RunPage;

    fn to_wire(&self) -> v1::RunPage {
        let next = self.next.as_ref().map(Wire::to_wire);
        v1::RunPage { runs: write_all(&self.runs), next }
    }

    fn from_wire(message: v1::RunPage) -> Result<Self, WireError> {
        let runs = read_all("runs", message.runs)?;
        Ok(RunPage { runs, next: read_some("next", message.next)? })
    }
}

impl Wire for TaskRecord {
    type Message = v1::RunTask;

    fn to_wire(&self) -> v1::RunTask {
        v1::RunTask {
            index: self.index.0,
            name: self.name.to_string(),
            state: self.state.to_wire(),
            attempt: self.attempt,
            fence: self.fence.0,
            pending_parents: self.pending_parents,
            available_at_us: self.available_at.map(|at| at.as_micros()),
            worker: self.worker.map(|worker| worker.to_string()),
            output: self.output.as_ref().map(text),
            failure: self.failure.as_ref().map(Wire::to_wire),
            progress: self.progress.as_ref().map(text),
        }
    }

    fn from_wire(message: v1::RunTask) -> Result<Self, WireError> {
        Ok(TaskRecord {
            index: TaskIndex(message.index),
            name: name("name", TaskName::new(&message.name))?,
            state: TaskState::from_wire(message.state)?,
            attempt: message.attempt,
            fence: Fence(message.fence),
            pending_parents: message.pending_parents,
            available_at: message.available_at_us.map(time),
            worker: parse_some("worker", message.worker)?,
            output: json_some("output", message.output)?,
            failure: read_some("failure", message.failure)?,
            progress: json_some("progress", message.progress)?,
        })
    }
}

impl Wire for NewSignal {
    type Message = v1::SignalRunRequest;

    fn to_wire(&self) -> v1::SignalRunRequest {
        v1::SignalRunRequest {
            id: self.id.to_string(),
            run: self.run.to_string(),
            name: self.name.to_string(),
            value: text(&self.value),
        }
    }

    fn from_wire(message: v1::SignalRunRequest) -> Result<Self, WireError> {
        Ok(NewSignal {
            id: parse("id", &message.id)?,
            run: parse("run", &message.run)?,
            name: name("name", StepName::new(&message.name))?,
            value: json_or_null("value", message.value)?,
        })
    }
}

impl Wire for NewKeySignal {
    type Message = v1::SignalKeyRequest;

    fn to_wire(&self) -> v1::SignalKeyRequest {
        v1::SignalKeyRequest {
            id: self.id.to_string(),
            tenant: self.to.tenant.to_string(),
            key: self.to.key.to_string(),
            name: self.to.name.to_string(),
            value: text(&self.value),
            keep_for_us: Some(micros(self.keep_for)),
        }
    }

    fn from_wire(message: v1::SignalKeyRequest) -> Result<Self, WireError> {
        let to = Mailbox {
            tenant: tenant(&message.tenant)?,
            key: name("key", SignalKey::new(&message.key))?,
            name: name("name", StepName::new(&message.name))?,
        };
        Ok(NewKeySignal {
            id: parse("id", &message.id)?,
            to,
            value: json_or_null("value", message.value)?,
            keep_for: message.keep_for_us.map_or(SIGNAL_KEPT, Duration::from_micros),
        })
    }
}
