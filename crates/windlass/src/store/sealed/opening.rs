//! What comes in: every value of an answer, opened where it belongs.
//!
//! Values that programs go on with are opened or are an error. Lists leave what they cannot open as it
//! is, and so do texts and the records of a store that is [for people](super::SealedStore::for_people):
//! nobody takes them for anything else.

use std::fmt;

use serde_json::Value;
use windlass_core::undo::UNDO_SUFFIX;
use windlass_core::why::{Reason, TimeCause};
use windlass_core::{
    Event, EventBody, Failure, Payload, RunEventKind, RunId, ScheduleName, StepKind, StepRecord,
    StepResult, StepState, TaskEventKind, TaskId, TaskIndex, Tenant, WorkflowName,
};

use super::envelope::{self, Unopened};
use super::keyring::Keyring;
use super::place::{Header, Place};
use crate::store::{
    ArchivedRun, Claimed, DutyRecord, LogEntry, RunRecord, SCHEDULE_METADATA, ScheduleRecord,
    StoreError, TaskRecord,
};

/// The run that an input is of, as far as whoever opens it is told.
struct InputOf<'a> {
    run: RunId,
    tenant: &'a Tenant,
    workflow: &'a WorkflowName,
    /// What it was sealed for, where that is known: another key or schedule is refused.
    expected: Option<Expected>,
}

/// By what the start of a run was named.
#[derive(PartialEq, Eq)]
enum Expected {
    Key([u8; 16]),
    Schedule([u8; 16]),
    Neither,
}

impl InputOf<'_> {
    fn open(&self, keys: &Keyring, input: &Payload) -> Result<Payload, Unopened> {
        // The store itself says which run is undone.
        if self.workflow.as_str().ends_with(UNDO_SUFFIX)
            && envelope::Envelope::of_payload(input).is_none()
        {
            return Ok(input.clone());
        }
        envelope::open_by(keys, input, |envelope| {
            let (place, said) = match envelope.header {
                Header::Known => (Place::Input(self.run), None),
                Header::Afresh => (Place::Afresh(self.run), None),
                Header::Keyed(digest) => {
                    let place = Place::KeyedInput(self.tenant, self.workflow, digest);
                    (place, Some(Expected::Key(digest)))
                }
                Header::Schedule(digest) => {
                    let place = Place::ScheduleInput(self.tenant, self.workflow, digest);
                    (place, Some(Expected::Schedule(digest)))
                }
            };
            let is_anothers = matches!((&self.expected, &said), (Some(a), Some(b)) if a != b);
            match is_anothers {
                true => Err(envelope.refused()),
                false => envelope.open(keys, &place),
            }
        })
    }
}

/// A value that cannot be opened.
#[derive(Debug)]
pub(super) struct Closed {
    what: String,
    why: Unopened,
}

impl Closed {
    /// Whether one with another keyring, or of another version, may be able to open it.
    pub(super) fn may_open_elsewhere(&self) -> bool {
        match self.why {
            Unopened::UnknownKey(_) | Unopened::UnknownForm => true,
            Unopened::Refused(_) | Unopened::Plain => false,
        }
    }
}

impl From<Closed> for StoreError {
    fn from(Closed { what, why }: Closed) -> Self {
        StoreError::Unreadable(format!("{what} {why}"))
    }
}

fn closed(what: impl fmt::Display) -> impl FnOnce(Unopened) -> Closed {
    move |why| Closed { what: what.to_string(), why }
}

impl Keyring {
    fn open(
        &self,
        place: &Place<'_>,
        payload: &mut Payload,
        what: impl fmt::Display,
    ) -> Result<(), Closed> {
        *payload = envelope::open(self, place, payload).map_err(closed(what))?;
        Ok(())
    }

    /// Opens what a claim gives.
    pub(super) fn open_claimed(&self, claimed: &mut Claimed) -> Result<(), Closed> {
        let (task, run) = (claimed.task, claimed.task.run);
        let input =
            InputOf { run, tenant: &claimed.tenant, workflow: &claimed.workflow, expected: None };
        claimed.input =
            input.open(self, &claimed.input).map_err(closed(format_args!("input of run {run}")))?;
        self.open_knowledge(claimed, task)
    }

    fn open_knowledge(&self, claimed: &mut Claimed, task: TaskId) -> Result<(), Closed> {
        let run = task.run;
        for parent in &mut claimed.parents {
            if let Some(output) = &mut parent.output {
                let of = TaskId { run, index: parent.index };
                self.open(&Place::Output(of), output, format_args!("output of task {of}"))?;
            }
        }
        for (_, failure) in &mut claimed.failures {
            self.open_failure(run, failure);
        }
        if let Some(checkpoint) = &mut claimed.checkpoint {
            let what = format_args!("checkpoint of task {task}");
            self.open(&Place::Checkpoint(task), checkpoint, what)?;
        }
        if let Some(failure) = &mut claimed.last_failure {
            self.open_failure(run, failure);
        }
        let tenant = Some(&claimed.tenant);
        for step in &mut claimed.steps {
            self.open_step(task, tenant, step)?;
        }
        Ok(())
    }

    /// Opens what is known of a call. The tenant is that of its run.
    pub(super) fn open_step(
        &self,
        task: TaskId,
        tenant: Option<&Tenant>,
        step: &mut StepRecord,
    ) -> Result<(), Closed> {
        match &mut step.state {
            StepState::Open { failure, .. } => {
                if let Some(failure) = failure {
                    self.open_failure(task.run, failure);
                }
                Ok(())
            }
            StepState::Done { result: StepResult::Failed(failure), .. } => {
                self.open_failure(task.run, failure);
                Ok(())
            }
            StepState::Done { result: StepResult::Value(value), .. } => {
                let own = Place::Step(task, step.call);
                let taken = match (step.kind, &step.key, tenant) {
                    (StepKind::Signal, None, _) => Some(Place::Signal(task.run, &step.name)),
                    (StepKind::Signal, Some(key), Some(tenant)) => {
                        Some(Place::KeySignal(tenant, key, &step.name))
                    }
                    (StepKind::Input, _, _) => Some(Place::Afresh(task.run)),
                    (StepKind::Signal, Some(_), None)
                    | (
                        StepKind::Step
                        | StepKind::Undoable
                        | StepKind::Sleep
                        | StepKind::Time
                        | StepKind::Child
                        | StepKind::Patch,
                        _,
                        _,
                    ) => None,
                };
                // The store made a signal the result of the call, or the function said so itself.
                let opened = taken.and_then(|place| envelope::open(self, &place, value).ok());
                match opened {
                    Some(opened) => {
                        *value = opened;
                        Ok(())
                    }
                    None => {
                        let what = format_args!("result of call {} of task {task}", step.call);
                        self.open(&own, value, what)
                    }
                }
            }
        }
    }

    /// Opens a signal that a function has taken.
    pub(super) fn open_signal(&self, place: &Place<'_>, value: &mut Payload) -> Result<(), Closed> {
        self.open(place, value, "signal")
    }

    /// Opens what a child came to.
    pub(super) fn open_result(&self, task: TaskId, result: &mut StepResult) -> Result<(), Closed> {
        match result {
            StepResult::Value(value) => {
                self.open(&Place::Output(task), value, format_args!("output of task {task}"))
            }
            StepResult::Failed(failure) => {
                self.open_failure(task.run, failure);
                Ok(())
            }
        }
    }

    pub(super) fn open_failure(&self, run: RunId, failure: &mut Failure) {
        self.open_text(&Place::Failure(run), &mut failure.message);
    }

    fn open_text(&self, place: &Place<'_>, text: &mut String) {
        *text = envelope::open_text(self, place, std::mem::take(text));
    }

    pub(super) fn open_run(&self, run: &mut RunRecord) -> Result<(), Closed> {
        let schedule = run.metadata.get(SCHEDULE_METADATA);
        let schedule = schedule.and_then(|name| ScheduleName::new(name.as_str()).ok());
        let expected = match (&run.key, &schedule) {
            (Some(key), _) => Expected::Key(Place::digest_of_key(key)),
            (None, Some(name)) => Expected::Schedule(Place::digest_of_schedule(name)),
            (None, None) => Expected::Neither,
        };
        let input = InputOf {
            run: run.id,
            tenant: &run.tenant,
            workflow: &run.workflow,
            expected: Some(expected),
        };
        let what = format!("input of run {}", run.id);
        if let Some(sealed) = &mut run.input {
            *sealed = input.open(self, sealed).map_err(closed(what))?;
        }
        Ok(())
    }

    pub(super) fn open_task(&self, run: RunId, task: &mut TaskRecord) -> Result<(), Closed> {
        let id = TaskId { run, index: task.index };
        if let Some(failure) = &mut task.failure {
            self.open_failure(run, failure);
        }
        if let Some(output) = &mut task.output {
            self.open(&Place::Output(id), output, format_args!("output of task {id}"))?;
        }
        if let Some(progress) = &mut task.progress {
            self.open(&Place::Progress(id), progress, format_args!("progress of task {id}"))?;
        }
        Ok(())
    }

    pub(super) fn open_schedule(&self, record: &mut ScheduleRecord) -> Result<(), Closed> {
        let schedule = &mut record.schedule;
        let digest = Place::digest_of_schedule(&schedule.key.name);
        let place = Place::ScheduleInput(&schedule.key.tenant, &schedule.workflow, digest);
        let what = format!("input of schedule {:?}", schedule.key.name);
        schedule.input = envelope::open(self, &place, &schedule.input).map_err(closed(what))?;
        Ok(())
    }

    pub(super) fn open_event(&self, event: &mut Event) {
        let run = event.run;
        match &mut event.body {
            EventBody::Run(event) => match &mut event.kind {
                RunEventKind::Cancelled { reason } => {
                    if let Some(reason) = reason {
                        self.open_text(&Place::Reason(run), reason);
                    }
                }
                RunEventKind::Started
                | RunEventKind::Ended
                | RunEventKind::Retried { .. }
                | RunEventKind::Continued { .. }
                | RunEventKind::Undoing { .. } => {}
            },
            EventBody::Task(event) => match &mut event.kind {
                TaskEventKind::Failed { failure }
                | TaskEventKind::Retrying { failure, .. }
                | TaskEventKind::LeaseExpired { failure: Some(failure), .. } => {
                    self.open_failure(run, failure);
                }
                TaskEventKind::Queued
                | TaskEventKind::Delayed { .. }
                | TaskEventKind::Blocked { .. }
                | TaskEventKind::Sleeping { .. }
                | TaskEventKind::Woken
                | TaskEventKind::Started { .. }
                | TaskEventKind::Succeeded
                | TaskEventKind::Released { .. }
                | TaskEventKind::Parked { .. }
                | TaskEventKind::Resumed
                | TaskEventKind::Continued
                | TaskEventKind::LeaseExpired { failure: None, .. }
                | TaskEventKind::Skipped
                | TaskEventKind::Cancelled
                | TaskEventKind::Reset => {}
            },
        }
    }

    /// Opens what a reason says; `task` is the one that it is about, where that is known.
    pub(super) fn open_reason(&self, run: RunId, task: Option<TaskId>, reason: &mut Reason) {
        match reason {
            Reason::Running { progress: Some(progress), .. } => {
                let opened =
                    task.map(|task| envelope::open(self, &Place::Progress(task), progress));
                if let Some(Ok(opened)) = opened {
                    *progress = opened;
                }
            }
            Reason::Failed { failure: Some(failure) } => self.open_failure(run, failure),
            Reason::Cancelled { why: Some(why) } => self.open_text(&Place::Reason(run), why),
            Reason::Time { cause, .. } | Reason::Due { cause, .. } => match cause {
                TimeCause::Backoff { failure } => self.open_failure(run, failure),
                TimeCause::Call { failure: Some(failure), .. } => self.open_failure(run, failure),
                TimeCause::Call { failure: None, .. } | TimeCause::Delay | TimeCause::Sleep => {}
            },
            // The others have names, times and counts.
            Reason::Staged
            | Reason::Parents { .. }
            | Reason::RestOfRun { .. }
            | Reason::Signal { .. }
            | Reason::Children { .. }
            | Reason::Lane { .. }
            | Reason::Rate { .. }
            | Reason::Quiet { .. }
            | Reason::Breaker { .. }
            | Reason::Superseded { .. }
            | Reason::Ready { .. }
            | Reason::Running { .. }
            | Reason::LeaseExpired { .. }
            | Reason::NoLeader { .. }
            | Reason::Parked
            | Reason::Failed { .. }
            | Reason::Cancelled { .. }
            | Reason::Ended
            | _ => {}
        }
    }

    /// Opens what is known of a run that is gone, as far as it can be.
    pub(super) fn open_archived(&self, run: &mut ArchivedRun) {
        if !run.body.as_str().contains("wl-sealed") {
            return;
        }
        let Ok(mut body) = run.body.decode::<Value>() else { return };
        let (id, tenant, workflow) = (run.id, &run.tenant, &run.workflow);
        let input = InputOf { run: id, tenant, workflow, expected: None };
        open_value(body.get_mut("input"), |value| input.open(self, value).ok());
        if let Some(Value::Array(tasks)) = body.get_mut("tasks") {
            for (index, task) in (0..).zip(tasks) {
                let place = Place::Output(TaskId { run: id, index: TaskIndex(index) });
                open_value(task.get_mut("output"), |value| {
                    envelope::open(self, &place, value).ok()
                });
            }
        }
        self.open_texts(id, &mut body);
        if let Ok(body) = Payload::encode(&body) {
            run.body = body;
        }
    }

    /// Opens all texts in a document about a run.
    fn open_texts(&self, run: RunId, value: &mut Value) {
        match value {
            Value::String(text) => {
                self.open_text(&Place::Failure(run), text);
                self.open_text(&Place::Reason(run), text);
            }
            Value::Array(values) => {
                values.iter_mut().for_each(|value| self.open_texts(run, value));
            }
            Value::Object(members) => {
                members.values_mut().for_each(|value| self.open_texts(run, value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    pub(super) fn open_log_entry(&self, entry: &mut LogEntry) {
        let place = Place::Detail(entry.id);
        let opened = entry.detail.as_ref().map(|detail| envelope::open(self, &place, detail));
        if let Some(Ok(opened)) = opened {
            entry.detail = Some(opened);
        }
    }

    pub(super) fn open_duty(&self, duty: &mut DutyRecord) {
        if let Some(error) = &mut duty.last_error {
            self.open_text(&Place::Duty(&duty.name), error);
        }
    }

    /// Opens what was done once for a key.
    #[cfg(feature = "postgres")]
    pub(crate) fn open_once(
        &self,
        once: super::OncePlace<'_>,
        value: &Payload,
    ) -> Result<Payload, StoreError> {
        let what = format!("result of key {:?}", once.key);
        Ok(envelope::open(self, &once.place(), value).map_err(closed(what))?)
    }
}

/// Opens a value in a document, if there is one and it can be.
fn open_value(value: Option<&mut Value>, open: impl FnOnce(&Payload) -> Option<Payload>) {
    let Some(value) = value else { return };
    let opened = Payload::encode(value).ok().and_then(|sealed| open(&sealed));
    if let Some(Ok(opened)) = opened.map(|opened| opened.decode()) {
        *value = opened;
    }
}
