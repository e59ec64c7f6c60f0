//! What workers say and are told, as messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    Call, ClaimSeq, Decision, QueueName, RunState, SignalKey, StepName, TaskIndex, TaskName,
    TaskSpec, TaskState, Tenant, TraceContext, WorkerId, WorkflowName,
};

use super::{
    Wire, WireError, json, json_some, large, micros, name, parse, read, read_all, read_some,
    required, small, text, time, unknown, v1, version, write_all,
};
use crate::store::{
    Answer, Born, CHECKPOINT_NUMBER_MAX, Checkpoint, Child, ChildCount, ChildStart, Claimed,
    Completion, HandlerKey, Heartbeat, HeartbeatAnswer, Hello, Lost, ParentEnd, ProgressNote,
    Recording, Refusal, Release, Signalled, StoreError, TakeSignal, Taken, ToUndo, Which,
    WorkerInfo,
};

impl Wire for Hello {
    type Message = v1::Hello;

    fn to_wire(&self) -> v1::Hello {
        v1::Hello {
            worker: self.worker.to_string(),
            name: self.name.clone(),
            slots: self.slots,
            lease_us: micros(self.lease),
            queues: self.info.queues.iter().map(|queue| queue.as_str().to_owned()).collect(),
            definitions: write_all(&self.definitions),
            host: self.info.host.clone(),
            pid: self.info.pid,
            version: self.info.version.clone(),
            labels: self.info.metadata.clone().into_iter().collect(),
        }
    }

    fn from_wire(message: v1::Hello) -> Result<Self, WireError> {
        let queues = message.queues.iter().map(QueueName::new).collect::<Result<_, _>>();
        Ok(Hello {
            worker: parse("worker", &message.worker)?,
            name: message.name,
            slots: message.slots,
            lease: Duration::from_micros(message.lease_us),
            definitions: read_all("definitions", message.definitions)?,
            info: WorkerInfo {
                host: message.host,
                pid: message.pid,
                version: message.version,
                queues: name("queues", queues)?,
                metadata: message.labels.into_iter().collect(),
            },
        })
    }
}

impl Wire for HandlerKey {
    type Message = v1::WorkflowVersion;

    fn to_wire(&self) -> v1::WorkflowVersion {
        let workflow = self.workflow.as_str().to_owned();
        v1::WorkflowVersion { workflow, version: self.version.get() }
    }

    fn from_wire(message: v1::WorkflowVersion) -> Result<Self, WireError> {
        let workflow = name("workflow", WorkflowName::new(&message.workflow))?;
        Ok(HandlerKey { workflow, version: version(message.version)? })
    }
}

/// Tasks with their specifications, each of which is said once.
pub fn write_tasks(tasks: &[Claimed]) -> v1::Tasks {
    let mut places: HashMap<*const TaskSpec, u32> = HashMap::new();
    let mut specs = Vec::new();
    let mut messages = Vec::with_capacity(tasks.len());
    for task in tasks {
        let spec = *places.entry(Arc::as_ptr(&task.spec)).or_insert_with(|| {
            specs.push(task.spec.to_wire());
            u32::try_from(specs.len() - 1).unwrap_or(u32::MAX)
        });
        messages.push(write_task(task, spec));
    }
    v1::Tasks { tasks: messages, specs, refusal: v1::Refusal::None.into() }
}

fn write_task(task: &Claimed, spec: u32) -> v1::ClaimedTask {
    let held = crate::store::Held { task: task.task, fence: task.fence };
    let failed = |(name, failure): &(TaskName, windlass_core::Failure)| v1::FailedTask {
        name: name.as_str().to_owned(),
        failure: Some(failure.to_wire()),
    };
    let (traceparent, tracestate) = match &task.trace {
        Some(trace) => (trace.to_string(), trace.state().unwrap_or_default().to_owned()),
        None => (String::new(), String::new()),
    };
    v1::ClaimedTask {
        held: Some(held.to_wire()),
        attempt: task.attempt,
        workflow: task.workflow.as_str().to_owned(),
        version: task.version.get(),
        spec,
        tenant: task.tenant.as_str().to_owned(),
        input: text(&task.input),
        parents: write_all(&task.parents),
        failures: task.failures.iter().map(failed).collect(),
        checkpoint: task.checkpoint.as_ref().map(text),
        last_failure: task.last_failure.as_ref().map(Wire::to_wire),
        steps: write_all(&task.steps),
        at_us: task.at.as_micros(),
        round: task.round,
        afresh: task.afresh,
        traceparent,
        tracestate,
    }
}

/// Tasks with their specifications.
///
/// # Errors
///
/// As [`Wire::from_wire`].
pub fn read_tasks(message: v1::Tasks) -> Result<Vec<Claimed>, WireError> {
    let specs: Vec<Arc<TaskSpec>> = read_all("specs", message.specs)?;
    let one = |(place, task)| {
        read_task(task, &specs).map_err(|error: WireError| error.within(format!("tasks[{place}]")))
    };
    message.tasks.into_iter().enumerate().map(one).collect()
}

fn read_task(task: v1::ClaimedTask, specs: &[Arc<TaskSpec>]) -> Result<Claimed, WireError> {
    let held: crate::store::Held = read("held", task.held)?;
    let spec = specs.get(task.spec as usize).cloned();
    let failed = |failed: v1::FailedTask| -> Result<_, WireError> {
        let task = name("failures.name", TaskName::new(&failed.name))?;
        Ok((task, read("failures.failure", failed.failure)?))
    };
    let trace = if task.traceparent.is_empty() {
        None
    } else {
        let state = Some(task.tracestate.as_str()).filter(|state| !state.is_empty());
        Some(name("traceparent", TraceContext::parse(&task.traceparent, state))?)
    };
    Ok(Claimed {
        task: held.task,
        fence: held.fence,
        attempt: task.attempt,
        workflow: name("workflow", WorkflowName::new(&task.workflow))?,
        version: version(task.version)?,
        spec: required("spec", spec)?,
        tenant: name("tenant", Tenant::new(&task.tenant))?,
        input: json("input", task.input)?,
        parents: read_all("parents", task.parents)?,
        failures: task.failures.into_iter().map(failed).collect::<Result<_, _>>()?,
        checkpoint: json_some("checkpoint", task.checkpoint)?,
        last_failure: read_some("last_failure", task.last_failure)?,
        steps: read_all("steps", task.steps)?,
        at: time(task.at_us),
        round: task.round,
        afresh: task.afresh,
        trace,
    })
}

impl Wire for ParentEnd {
    type Message = v1::ParentEnd;

    fn to_wire(&self) -> v1::ParentEnd {
        let output = self.output.as_ref().map(text);
        v1::ParentEnd { index: self.index.0, state: self.state.to_wire(), output }
    }

    fn from_wire(message: v1::ParentEnd) -> Result<Self, WireError> {
        Ok(ParentEnd {
            index: TaskIndex(message.index),
            state: TaskState::from_wire(message.state)?,
            output: json_some("output", message.output)?,
        })
    }
}

impl Wire for Completion {
    type Message = v1::Result;

    fn to_wire(&self) -> v1::Result {
        let held = crate::store::Held { task: self.task, fence: self.fence };
        let decision = match &self.decision {
            Decision::Succeed(output) => v1::result::Decision::Succeed(text(output)),
            Decision::Fail(failure) => v1::result::Decision::Fail(failure.to_wire()),
            Decision::Retry { failure, delay } => v1::result::Decision::Retry(v1::Retry {
                failure: Some(failure.to_wire()),
                delay_us: micros(*delay),
            }),
            Decision::Skip => v1::result::Decision::Skip(v1::Done {}),
            Decision::Park(parking) => v1::result::Decision::Park(parking.to_wire()),
            Decision::Continue(input) => v1::result::Decision::ContinueWith(text(input)),
        };
        v1::Result { held: Some(held.to_wire()), decision: Some(decision) }
    }

    fn from_wire(message: v1::Result) -> Result<Self, WireError> {
        let held: crate::store::Held = read("held", message.held)?;
        let decision = match required("decision", message.decision)? {
            v1::result::Decision::Succeed(output) => Decision::Succeed(json("succeed", output)?),
            v1::result::Decision::Fail(failure) => Decision::Fail(read("fail", Some(failure))?),
            v1::result::Decision::Retry(retry) => Decision::Retry {
                failure: read("retry.failure", retry.failure)?,
                delay: Duration::from_micros(retry.delay_us),
            },
            v1::result::Decision::Skip(v1::Done {}) => Decision::Skip,
            v1::result::Decision::Park(parking) => Decision::Park(read("park", Some(parking))?),
            v1::result::Decision::ContinueWith(input) => {
                Decision::Continue(json("continue_with", input)?)
            }
            v1::result::Decision::FailedAttempt(failed) => {
                let policy: windlass_core::RetryPolicy =
                    read_some("failed_attempt.retry", failed.retry)?.unwrap_or_default();
                let failure = read("failed_attempt.failure", failed.failure)?;
                let outcome = windlass_core::Outcome::Failed(failure);
                windlass_core::decide(&policy, failed.attempt.max(1), outcome, fastrand::f64())
            }
        };
        Ok(Completion { task: held.task, fence: held.fence, decision })
    }
}

impl Wire for Release {
    type Message = v1::Release;

    fn to_wire(&self) -> v1::Release {
        let held = crate::store::Held { task: self.task, fence: self.fence };
        v1::Release { held: Some(held.to_wire()), delay_us: micros(self.delay) }
    }

    fn from_wire(message: v1::Release) -> Result<Self, WireError> {
        let held: crate::store::Held = read("held", message.held)?;
        let delay = Duration::from_micros(message.delay_us);
        Ok(Release { task: held.task, fence: held.fence, delay })
    }
}

impl Wire for Checkpoint {
    type Message = v1::Checkpoint;

    fn to_wire(&self) -> v1::Checkpoint {
        let (held, value) = (Some(self.held.to_wire()), text(&self.value));
        v1::Checkpoint { held, value, number: self.number }
    }

    fn from_wire(message: v1::Checkpoint) -> Result<Self, WireError> {
        let (held, number) = (read("held", message.held)?, message.number);
        if number > CHECKPOINT_NUMBER_MAX {
            let problem = format!("{number} is more than {CHECKPOINT_NUMBER_MAX}");
            return Err(WireError::new("number", problem));
        }
        Ok(Checkpoint { held, number, value: json("value", message.value)? })
    }
}

impl Wire for Recording {
    type Message = v1::Recording;

    fn to_wire(&self) -> v1::Recording {
        v1::Recording { held: Some(self.held.to_wire()), steps: write_all(&self.steps) }
    }

    fn from_wire(message: v1::Recording) -> Result<Self, WireError> {
        let steps = read_all("steps", message.steps)?;
        Ok(Recording { held: read("held", message.held)?, steps })
    }
}

impl Wire for Answer {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let answer = match self {
            Answer::Accepted => v1::Answer::Accepted,
            Answer::AcceptedAlready => v1::Answer::AcceptedAlready,
            Answer::Refused(Refusal::LeaseLost) => v1::Answer::LeaseLost,
            Answer::Refused(Refusal::RunCancelled) => v1::Answer::RunCancelled,
            Answer::Refused(Refusal::UnknownTask) => v1::Answer::UnknownTask,
            Answer::Refused(Refusal::Invalid) => v1::Answer::Invalid,
        };
        answer.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::Answer::try_from(number) {
            Ok(v1::Answer::Accepted) => Ok(Answer::Accepted),
            Ok(v1::Answer::AcceptedAlready) => Ok(Answer::AcceptedAlready),
            Ok(v1::Answer::LeaseLost) => Ok(Answer::Refused(Refusal::LeaseLost)),
            Ok(v1::Answer::RunCancelled) => Ok(Answer::Refused(Refusal::RunCancelled)),
            Ok(v1::Answer::UnknownTask) => Ok(Answer::Refused(Refusal::UnknownTask)),
            Ok(v1::Answer::Invalid) => Ok(Answer::Refused(Refusal::Invalid)),
            Ok(v1::Answer::Unspecified) | Err(_) => Err(unknown("answer", number)),
        }
    }
}

/// The answers to a batch, without tasks.
pub fn write_answers(answers: &[Answer]) -> v1::Answers {
    v1::Answers { answers: write_all(answers), claimed: None }
}

/// The answers to a batch.
///
/// # Errors
///
/// As [`Wire::from_wire`].
pub fn read_answers(answers: Vec<i32>) -> Result<Vec<Answer>, WireError> {
    read_all("answers", answers)
}

impl Wire for Refusal {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let refusal = match self {
            Refusal::LeaseLost => v1::Refusal::LeaseLost,
            Refusal::RunCancelled => v1::Refusal::RunCancelled,
            Refusal::UnknownTask => v1::Refusal::UnknownTask,
            Refusal::Invalid => v1::Refusal::Invalid,
        };
        refusal.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::Refusal::try_from(number) {
            Ok(v1::Refusal::LeaseLost) => Ok(Refusal::LeaseLost),
            Ok(v1::Refusal::RunCancelled) => Ok(Refusal::RunCancelled),
            Ok(v1::Refusal::UnknownTask) => Ok(Refusal::UnknownTask),
            Ok(v1::Refusal::Invalid) => Ok(Refusal::Invalid),
            Ok(v1::Refusal::None) | Err(_) => Err(unknown("refusal", number)),
        }
    }
}

/// What is to be undone.
pub fn write_to_undo(answer: &ToUndo) -> v1::Tasks {
    match answer {
        Ok(tasks) => write_tasks(tasks),
        Err(refusal) => v1::Tasks { refusal: refusal.to_wire(), ..v1::Tasks::default() },
    }
}

/// What is to be undone.
///
/// # Errors
///
/// As [`Wire::from_wire`].
pub fn read_to_undo(message: v1::Tasks) -> Result<ToUndo, WireError> {
    if message.refusal == i32::from(v1::Refusal::None) {
        return read_tasks(message).map(Ok);
    }
    Refusal::from_wire(message.refusal).map(Err)
}

impl Wire for TakeSignal {
    type Message = v1::TakeSignal;

    fn to_wire(&self) -> v1::TakeSignal {
        let (up_to, number) = match self.which {
            Which::Newest => (None, 0),
            Which::UpTo(signal, number) => (Some(signal.to_string()), number),
        };
        v1::TakeSignal {
            held: Some(self.held.to_wire()),
            call: self.call.0,
            name: self.name.as_str().to_owned(),
            key: self.key.as_ref().map(|key| key.as_str().to_owned()),
            up_to,
            number,
        }
    }

    fn from_wire(message: v1::TakeSignal) -> Result<Self, WireError> {
        let which = match message.up_to {
            Some(signal) => Which::UpTo(parse("up_to", &signal)?, small("number", message.number)?),
            None => Which::Newest,
        };
        Ok(TakeSignal {
            held: read("held", message.held)?,
            call: Call(small("call", message.call)?),
            name: name("name", StepName::new(&message.name))?,
            key: name("key", message.key.map(SignalKey::new).transpose())?,
            which,
        })
    }
}

impl Wire for Taken {
    type Message = v1::SignalTaken;

    fn to_wire(&self) -> v1::SignalTaken {
        let taken = match self {
            Ok(None) => v1::signal_taken::Taken::None(v1::Done {}),
            Ok(Some(Signalled::Newest(signal))) => {
                v1::signal_taken::Taken::Newest(signal.to_string())
            }
            Ok(Some(Signalled::Value(value))) => v1::signal_taken::Taken::Value(text(value)),
            Err(refusal) => v1::signal_taken::Taken::Refusal(refusal.to_wire()),
        };
        v1::SignalTaken { taken: Some(taken) }
    }

    fn from_wire(message: v1::SignalTaken) -> Result<Self, WireError> {
        match required("taken", message.taken)? {
            v1::signal_taken::Taken::None(v1::Done {}) => Ok(Ok(None)),
            v1::signal_taken::Taken::Newest(signal) => {
                Ok(Ok(Some(Signalled::Newest(parse("newest", &signal)?))))
            }
            v1::signal_taken::Taken::Value(value) => {
                Ok(Ok(Some(Signalled::Value(json("value", value)?))))
            }
            v1::signal_taken::Taken::Refusal(refusal) => Refusal::from_wire(refusal).map(Err),
        }
    }
}

impl Wire for ChildStart {
    type Message = v1::ChildStart;

    fn to_wire(&self) -> v1::ChildStart {
        v1::ChildStart {
            held: Some(self.held.to_wire()),
            call: self.call.0,
            place: self.place,
            run: Some(self.run.to_wire()),
            definition: Some(self.definition.to_wire()),
        }
    }

    fn from_wire(message: v1::ChildStart) -> Result<Self, WireError> {
        Ok(ChildStart {
            held: read("held", message.held)?,
            call: Call(small("call", message.call)?),
            place: message.place,
            run: read("run", message.run)?,
            definition: read("definition", message.definition)?,
        })
    }
}

impl Wire for Born {
    type Message = v1::ChildBorn;

    fn to_wire(&self) -> v1::ChildBorn {
        let born = match self {
            Born::Started(started) => v1::child_born::Born::Started(started.to_wire()),
            Born::Refused(refusal) => v1::child_born::Born::Refusal(refusal.to_wire()),
            Born::Failed(error) => v1::child_born::Born::Failed(error.to_wire()),
        };
        v1::ChildBorn { born: Some(born) }
    }

    fn from_wire(message: v1::ChildBorn) -> Result<Self, WireError> {
        Ok(match required("born", message.born)? {
            v1::child_born::Born::Started(started) => {
                Born::Started(read("started", Some(started))?)
            }
            v1::child_born::Born::Refusal(refusal) => Born::Refused(Refusal::from_wire(refusal)?),
            v1::child_born::Born::Failed(error) => {
                Born::Failed(read::<StoreError>("failed", Some(error))?)
            }
        })
    }
}

impl Wire for ChildCount {
    type Message = v1::ChildCount;

    fn to_wire(&self) -> v1::ChildCount {
        v1::ChildCount { started: self.started, open: self.open }
    }

    fn from_wire(message: v1::ChildCount) -> Result<Self, WireError> {
        Ok(ChildCount { started: message.started, open: message.open })
    }
}

impl Wire for Child {
    type Message = v1::Child;

    fn to_wire(&self) -> v1::Child {
        v1::Child {
            place: self.place,
            run: self.run.to_string(),
            state: self.state.to_wire(),
            result: self.result.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: v1::Child) -> Result<Self, WireError> {
        Ok(Child {
            place: message.place,
            run: parse("run", &message.run)?,
            state: RunState::from_wire(message.state)?,
            result: read_some("result", message.result)?,
        })
    }
}

impl Wire for Heartbeat {
    type Message = v1::Heartbeat;

    fn to_wire(&self) -> v1::Heartbeat {
        v1::Heartbeat {
            worker: self.worker.to_string(),
            settled: self.settled.0,
            held: write_all(&self.held),
            progress: write_all(&self.progress),
        }
    }

    fn from_wire(message: v1::Heartbeat) -> Result<Self, WireError> {
        Ok(Heartbeat {
            worker: parse::<WorkerId>("worker", &message.worker)?,
            settled: ClaimSeq(large("settled", message.settled)?),
            held: read_all("held", message.held)?,
            progress: read_all("progress", message.progress)?,
        })
    }
}

impl Wire for ProgressNote {
    type Message = v1::Progress;

    fn to_wire(&self) -> v1::Progress {
        v1::Progress { held: Some(self.held.to_wire()), note: text(&self.note) }
    }

    fn from_wire(message: v1::Progress) -> Result<Self, WireError> {
        Ok(ProgressNote { held: read("held", message.held)?, note: json("note", message.note)? })
    }
}

impl Wire for HeartbeatAnswer {
    type Message = v1::Beat;

    fn to_wire(&self) -> v1::Beat {
        let lost = |lost: &Lost| v1::Lost {
            held: Some(lost.held.to_wire()),
            refusal: lost.refusal.to_wire(),
        };
        v1::Beat { lost: self.lost.iter().map(lost).collect(), should_drain: self.should_drain }
    }

    fn from_wire(message: v1::Beat) -> Result<Self, WireError> {
        let lost = |lost: v1::Lost| -> Result<Lost, WireError> {
            Ok(Lost { held: read("held", lost.held)?, refusal: Refusal::from_wire(lost.refusal)? })
        };
        Ok(HeartbeatAnswer {
            lost: message.lost.into_iter().map(lost).collect::<Result<_, _>>()?,
            should_drain: message.should_drain,
        })
    }
}
