//! What goes out: every value of a request, sealed for its place.

use windlass_core::decide::{MESSAGE_BYTES_MAX, storable};
use windlass_core::name::NAME_BYTES_MAX;
use windlass_core::{
    Decision, Definition, Failure, Payload, StepChange, StepResult, StepWrite, TaskId, TaskName,
    Tenant, WorkflowName,
};

use super::envelope;
use super::keyring::{Key, Keyring};
use super::place::Place;
use crate::store::{
    Checkpoint, Completion, DutyEnd, DutyOutcome, ERROR_CHARS_MAX, Heartbeat, NewKeySignal,
    NewLogEntry, NewRun, NewSchedule, NewSignal, Recording, StoreError,
};

/// The longest reason of a cancellation that is kept, in bytes; the rest is cut off.
const REASON_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// The longest error of a duty of a program that is kept, in bytes: sealed, it has to fit into
/// [`SEALED_ERROR_CHARS_MAX`](crate::store::leaders::SEALED_ERROR_CHARS_MAX).
const DUTY_ERROR_BYTES_MAX: usize = 1_400;

/// The fields of inputs that the limits of a workflow of this program read, which stay readable.
pub(crate) fn fields_of(definition: &Definition) -> Vec<String> {
    let limits = definition.tasks().iter().flat_map(|task| &task.limits);
    let mut fields: Vec<String> = limits.filter_map(|limit| limit.field.clone()).collect();
    fields.sort_unstable();
    fields.dedup();
    fields
}

impl Keyring {
    /// The fields that the limits of a workflow read of which this program knows by the store alone:
    /// each must be one that the keyring lets be readable.
    pub(crate) fn fields_told(&self, definition: &Definition) -> Result<Vec<String>, StoreError> {
        let fields = fields_of(definition);
        let Some(field) = fields.iter().find(|field| !self.may_be_readable(field)) else {
            return Ok(fields);
        };
        let (name, version) = (definition.name(), definition.version());
        let field = storable(field.clone(), NAME_BYTES_MAX);
        Err(StoreError::Conflict(format!(
            "workflow {name:?} of version {version} is said to have a limit by the field {field:?} of its \
             input, which would not be sealed: register the workflow in this program, or add the \
             line `readable {field}` to the payload keys"
        )))
    }

    fn seal(&self, place: &Place<'_>, payload: &mut Payload) {
        *payload = envelope::seal(self.first(), place, payload, &[]);
    }

    /// Seals the input of a start.
    pub(crate) fn seal_start(&self, run: &mut NewRun, fields: &[String]) {
        self.seal_start_with(self.first(), run, fields);
    }

    /// Seals the input of a start with each of the keys before the first one.
    pub(super) fn starts_before<'a>(
        &'a self,
        run: &'a NewRun,
        fields: &'a [String],
    ) -> impl Iterator<Item = NewRun> + 'a {
        self.older().map(move |key| {
            let mut run = run.clone();
            self.seal_start_with(key, &mut run, fields);
            run
        })
    }

    fn seal_start_with(&self, key: &Key, run: &mut NewRun, fields: &[String]) {
        let place = match &run.key {
            Some(key) => Place::KeyedInput(&run.tenant, &run.workflow, Place::digest_of_key(key)),
            None => Place::Input(run.id),
        };
        run.input = envelope::seal(key, &place, &run.input, fields);
    }

    pub(super) fn seal_schedule(&self, schedule: &mut NewSchedule, fields: &[String]) {
        let digest = Place::digest_of_schedule(&schedule.key.name);
        let place = Place::ScheduleInput(&schedule.key.tenant, &schedule.workflow, digest);
        schedule.input = envelope::seal(self.first(), &place, &schedule.input, fields);
    }

    pub(super) fn seal_completion(&self, completion: &mut Completion) {
        let task = completion.task;
        match &mut completion.decision {
            Decision::Succeed(output) => self.seal(&Place::Output(task), output),
            Decision::Continue(input) => self.seal(&Place::Afresh(task.run), input),
            Decision::Fail(failure) | Decision::Retry { failure, .. } => {
                self.seal_failure(task, failure);
            }
            Decision::Park(parking) => {
                parking.steps.iter_mut().for_each(|step| self.seal_write(task, step));
            }
            Decision::Skip => {}
        }
    }

    pub(super) fn seal_failure(&self, task: TaskId, failure: &mut Failure) {
        let plain = storable(std::mem::take(&mut failure.message), MESSAGE_BYTES_MAX);
        failure.message = envelope::seal_text(self.first(), &Place::Failure(task.run), &plain);
    }

    fn seal_write(&self, task: TaskId, step: &mut StepWrite) {
        match &mut step.change {
            StepChange::Done { result: StepResult::Value(value), .. } => {
                self.seal(&Place::Step(task, step.call), value);
            }
            StepChange::Done { result: StepResult::Failed(failure), .. } => {
                self.seal_failure(task, failure);
            }
            StepChange::Open { failure, .. } => {
                if let Some(failure) = failure {
                    self.seal_failure(task, failure);
                }
            }
        }
    }

    pub(super) fn seal_recording(&self, recording: &mut Recording) {
        let task = recording.held.task;
        recording.steps.iter_mut().for_each(|step| self.seal_write(task, step));
    }

    pub(super) fn seal_checkpoint(&self, checkpoint: &mut Checkpoint) {
        self.seal(&Place::Checkpoint(checkpoint.held.task), &mut checkpoint.value);
    }

    pub(super) fn seal_heartbeat(&self, heartbeat: &mut Heartbeat) {
        for note in &mut heartbeat.progress {
            self.seal(&Place::Progress(note.held.task), &mut note.note);
        }
    }

    pub(super) fn seal_signal(&self, signal: &mut NewSignal) {
        self.seal(&Place::Signal(signal.run, &signal.name), &mut signal.value);
    }

    pub(super) fn seal_key_signal(&self, signal: &mut NewKeySignal) {
        let to = &signal.to;
        self.seal(&Place::KeySignal(&to.tenant, &to.key, &to.name), &mut signal.value);
    }

    pub(super) fn seal_reason(&self, run: windlass_core::RunId, reason: String) -> String {
        let plain = storable(reason, REASON_BYTES_MAX);
        envelope::seal_text(self.first(), &Place::Reason(run), &plain)
    }

    pub(super) fn seal_detail(&self, entry: &mut NewLogEntry) {
        let place = Place::Detail(entry.id);
        if let Some(detail) = &mut entry.detail {
            self.seal(&place, detail);
        }
    }

    pub(super) fn seal_duty_end(&self, end: &mut DutyEnd) {
        match &mut end.outcome {
            DutyOutcome::Failed(error) => {
                let plain = error.chars().filter(|letter| !letter.is_control());
                let plain = plain.take(ERROR_CHARS_MAX).collect::<String>();
                let plain = storable(plain, DUTY_ERROR_BYTES_MAX);
                let place = Place::Duty(&end.mandate.name);
                *error = envelope::seal_text(self.first(), &place, &plain);
            }
            DutyOutcome::Succeeded | DutyOutcome::GivenUp => {}
        }
    }

    /// Seals the result of a call that is recorded in a transaction of a user's.
    #[cfg(feature = "postgres")]
    pub(crate) fn sealed_step(
        &self,
        task: TaskId,
        call: windlass_core::Call,
        value: &Payload,
    ) -> Payload {
        envelope::seal(self.first(), &Place::Step(task, call), value, &[])
    }

    /// Seals what was done once for a key.
    #[cfg(feature = "postgres")]
    pub(crate) fn sealed_once(&self, once: OncePlace<'_>, value: &Payload) -> Payload {
        envelope::seal(self.first(), &once.place(), value, &[])
    }
}

/// Where that belongs which is done once for a key.
#[derive(Clone, Copy)]
pub(crate) struct OncePlace<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) workflow: &'a WorkflowName,
    pub(crate) task: &'a TaskName,
    pub(crate) key: &'a str,
}

impl<'a> OncePlace<'a> {
    pub(super) fn place(self) -> Place<'a> {
        Place::Once(self.tenant, self.workflow, self.task, self.key)
    }
}
