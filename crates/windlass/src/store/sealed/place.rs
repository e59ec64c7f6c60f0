//! Where a value belongs, which is sealed into it: at another place it cannot be opened.

use ring::digest;
use windlass_core::{
    ActionId, Call, DutyName, IdempotencyKey, RunId, ScheduleName, SignalKey, StepName, TaskId,
    TaskName, Tenant, WorkflowName,
};

/// What says which key or schedule an input was sealed for, where its opener is not told.
pub(super) type Digest = [u8; 16];

/// The place of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// The input of a run.
    Input(RunId),
    /// The input of a run that was started with a key. The start may be repeated with another run
    /// id and must then be the same.
    KeyedInput(&'a Tenant, &'a WorkflowName, Digest),
    /// The input of the runs of a schedule.
    ScheduleInput(&'a Tenant, &'a WorkflowName, Digest),
    /// The input that a function of a run began afresh with.
    Afresh(RunId),
    /// The output of a task.
    Output(TaskId),
    /// The checkpoint of a task.
    Checkpoint(TaskId),
    /// What a handler last said of its progress.
    Progress(TaskId),
    /// The result of a call of a function.
    Step(TaskId, Call),
    /// A signal to a run.
    Signal(RunId, &'a StepName),
    /// A signal to a key.
    KeySignal(&'a Tenant, &'a SignalKey, &'a StepName),
    /// What was done once for a key by a task of a workflow.
    Once(&'a Tenant, &'a WorkflowName, &'a TaskName, &'a str),
    /// Why something in a run failed. That of a call becomes that of its task and of its run, and
    /// is looked for there by its bytes.
    Failure(RunId),
    /// Why a run was cancelled.
    Reason(RunId),
    /// What else an operator said of an action.
    Detail(ActionId),
    /// Why a duty of a program failed.
    Duty(&'a DutyName),
}

/// What the envelope itself says of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// Whoever opens it knows the place.
    Known,
    /// The input of a run with this key.
    Keyed(Digest),
    /// The input of a schedule's run.
    Schedule(Digest),
    /// What a function began afresh with.
    Afresh,
}

impl Header {
    pub(super) fn write(self, bytes: &mut Vec<u8>) {
        match self {
            Header::Known => bytes.push(0),
            Header::Keyed(digest) => {
                bytes.push(1);
                bytes.extend(digest);
            }
            Header::Schedule(digest) => {
                bytes.push(2);
                bytes.extend(digest);
            }
            Header::Afresh => bytes.push(3),
        }
    }

    /// The header, and what follows it.
    pub(super) fn read(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let (first, rest) = bytes.split_first()?;
        match first {
            0 => Some((Header::Known, rest)),
            1 => rest.split_first_chunk().map(|(digest, rest)| (Header::Keyed(*digest), rest)),
            2 => rest.split_first_chunk().map(|(digest, rest)| (Header::Schedule(*digest), rest)),
            3 => Some((Header::Afresh, rest)),
            _ => None,
        }
    }
}

/// Bytes that say one thing only: each part with its length before it.
#[derive(Default)]
pub(super) struct Parts(pub(super) Vec<u8>);

impl Parts {
    pub(super) fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.extend((part.len() as u64).to_be_bytes());
        self.0.extend(part);
    }

    fn add_run(&mut self, run: RunId) {
        self.add(run.as_uuid().as_bytes());
    }

    fn add_task(&mut self, task: TaskId) {
        self.add_run(task.run);
        self.add(task.index.0.to_be_bytes());
    }
}

impl Place<'_> {
    /// The input of a run with this key.
    pub(super) fn digest_of_key(key: &IdempotencyKey) -> Digest {
        digest_of("key", key.as_str())
    }

    /// The input of the runs of a schedule.
    pub(super) fn digest_of_schedule(name: &ScheduleName) -> Digest {
        digest_of("schedule", name.as_str())
    }

    pub(super) fn header(&self) -> Header {
        match self {
            Place::KeyedInput(_, _, digest) => Header::Keyed(*digest),
            Place::ScheduleInput(_, _, digest) => Header::Schedule(*digest),
            Place::Afresh(_) => Header::Afresh,
            Place::Input(_)
            | Place::Output(_)
            | Place::Checkpoint(_)
            | Place::Progress(_)
            | Place::Step(..)
            | Place::Signal(..)
            | Place::KeySignal(..)
            | Place::Once(..)
            | Place::Failure(_)
            | Place::Reason(_)
            | Place::Detail(_)
            | Place::Duty(_) => Header::Known,
        }
    }

    /// Adds its word and what tells it from the others of the same word.
    pub(super) fn add_to(&self, parts: &mut Parts) {
        match self {
            Place::Input(run) => {
                parts.add("input");
                parts.add_run(*run);
            }
            Place::KeyedInput(tenant, workflow, digest) => {
                parts.add("input of key");
                parts.add(tenant.as_str());
                parts.add(workflow.as_str());
                parts.add(digest);
            }
            Place::ScheduleInput(tenant, workflow, digest) => {
                parts.add("input of schedule");
                parts.add(tenant.as_str());
                parts.add(workflow.as_str());
                parts.add(digest);
            }
            Place::Afresh(run) => {
                parts.add("afresh");
                parts.add_run(*run);
            }
            Place::Output(task) => {
                parts.add("output");
                parts.add_task(*task);
            }
            Place::Checkpoint(task) => {
                parts.add("checkpoint");
                parts.add_task(*task);
            }
            Place::Progress(task) => {
                parts.add("progress");
                parts.add_task(*task);
            }
            Place::Step(task, call) => {
                parts.add("step");
                parts.add_task(*task);
                parts.add(call.0.to_be_bytes());
            }
            Place::Signal(run, name) => {
                parts.add("signal");
                parts.add_run(*run);
                parts.add(name.as_str());
            }
            Place::KeySignal(tenant, key, name) => {
                parts.add("signal to key");
                parts.add(tenant.as_str());
                parts.add(key.as_str());
                parts.add(name.as_str());
            }
            Place::Once(tenant, workflow, task, key) => {
                parts.add("once");
                parts.add(tenant.as_str());
                parts.add(workflow.as_str());
                parts.add(task.as_str());
                parts.add(key);
            }
            Place::Failure(run) => {
                parts.add("failure");
                parts.add_run(*run);
            }
            Place::Reason(run) => {
                parts.add("reason");
                parts.add_run(*run);
            }
            Place::Detail(action) => {
                parts.add("detail");
                parts.add(action.to_string());
            }
            Place::Duty(name) => {
                parts.add("duty");
                parts.add(name.as_str());
            }
        }
    }
}

fn digest_of(what: &str, name: &str) -> Digest {
    let mut parts = Parts::default();
    parts.add(what);
    parts.add(name);
    let whole = digest::digest(&digest::SHA256, &parts.0);
    let mut digest = Digest::default();
    let len = digest.len();
    digest.copy_from_slice(&whole.as_ref()[..len]);
    digest
}
