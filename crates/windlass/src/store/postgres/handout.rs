//! What a worker is told of the tasks it was given.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{
    Definition, EventBody, Failure, Fence, Payload, RunId, StepRecord, TaskEvent, TaskEventKind,
    TaskId, TaskIndex, TaskKind, TaskSpec, TaskState, Tenant, TraceContext,
};

use super::checkpoint::{Left, read_left};
use super::claim::Taken;
use super::fault::Fault;
use super::journal::step_of;
use super::run::is_simple;
use super::statements as sql;
use super::undo::trace_of;
use super::work::{pairs, task_id, task_state};
use super::writes::{Writes, params};
use crate::store::{Claimed, ParentEnd, StoreError};

/// The definitions and tenants of tasks that were taken.
pub(super) struct Named {
    pub(super) definitions: HashMap<i32, Arc<Definition>>,
    pub(super) tenants: HashMap<i32, Tenant>,
}

impl Named {
    pub(super) fn spec(&self, one: &Taken) -> &Arc<TaskSpec> {
        self.definitions[&one.definition].task(one.id.index)
    }

    /// Whether all there is to know of one is most likely its lease.
    pub(super) fn is_first(&self, one: &Taken) -> bool {
        one.fence == Fence(1) && is_simple(self.spec(one))
    }

    /// Those that have a visibility timeout.
    pub(super) fn limited(&self, taken: &[Taken]) -> Vec<(TaskId, Duration)> {
        let limit = |one: &Taken| Some((one.id, self.spec(one).visibility_timeout?));
        taken.iter().filter_map(limit).collect()
    }

    /// What is written down of their beginning.
    pub(super) fn started(&self, taken: &[Taken]) -> Vec<(RunId, EventBody)> {
        let event = |one: &Taken| {
            let worker = one.worker?;
            let event = TaskEvent {
                task: one.id.index,
                name: self.spec(one).name.clone(),
                kind: TaskEventKind::Started { worker },
                from: TaskState::Ready,
                to: TaskState::Running,
                fence: one.fence,
                attempt: one.attempt,
            };
            Some((one.id.run, EventBody::Task(event)))
        };
        taken.iter().filter_map(event).collect()
    }
}

/// What must be looked up for a worker to run the tasks it was given.
pub(super) struct Questions {
    /// Whose inputs.
    runs: BTreeSet<RunId>,
    /// Whose ends.
    parents: BTreeSet<TaskId>,
    /// Whose failures.
    failed: BTreeSet<RunId>,
    /// Whose checkpoints: a first claim cannot find one.
    again: BTreeSet<TaskId>,
}

impl Questions {
    pub(super) fn of(names: &Named, taken: &[Taken]) -> Self {
        let parents = taken.iter().flat_map(|one| {
            let parent = |index: &TaskIndex| TaskId { run: one.id.run, index: *index };
            names.spec(one).parents.iter().map(parent).collect::<Vec<_>>()
        });
        let is_on_failure = |one: &&Taken| names.spec(one).kind == TaskKind::OnFailure;
        Questions {
            runs: taken.iter().map(|one| one.id.run).collect(),
            parents: parents.collect(),
            failed: taken.iter().filter(is_on_failure).map(|one| one.id.run).collect(),
            again: taken.iter().filter(|one| one.fence > Fence(1)).map(|one| one.id).collect(),
        }
    }

    /// The same for tasks that were claimed before, whatever their fences.
    pub(super) fn of_all(names: &Named, taken: &[Taken]) -> Self {
        let again = taken.iter().map(|one| one.id).collect();
        Questions { again, ..Questions::of(names, taken) }
    }

    /// Puts a statement behind others for each question there is, in the order of the fields;
    /// answers how many.
    pub(super) fn ask(&self, writes: &mut Writes<'_>) -> usize {
        if !self.runs.is_empty() {
            writes.push(&sql::INPUTS, params![uuids(&self.runs)]);
        }
        if !self.parents.is_empty() {
            let (runs, indices) = pairs(&self.parents);
            writes.push(&sql::ENDS, params![runs, indices]);
        }
        if !self.failed.is_empty() {
            writes.push(&sql::FAILURES, params![uuids(&self.failed)]);
        }
        if !self.again.is_empty() {
            let (runs, indices) = pairs(&self.again);
            writes.push(&sql::CHECKPOINTS, params![runs.clone(), indices.clone()]);
            writes.push(&sql::STEPS, params![runs, indices]);
        }
        self.are_asked().into_iter().filter(|is_asked| *is_asked).count()
    }

    fn are_asked(&self) -> [bool; 5] {
        let Questions { runs, parents, failed, again } = self;
        let again = !again.is_empty();
        [!runs.is_empty(), !parents.is_empty(), !failed.is_empty(), again, again]
    }
}

/// What is known of the run of a task that was taken.
struct Input {
    input: Result<Payload, String>,
    round: u32,
    trace: Option<TraceContext>,
}

/// What is known of tasks that were taken.
pub(super) struct Facts {
    names: Named,
    inputs: HashMap<RunId, Input>,
    ends: HashMap<TaskId, (Result<TaskState, String>, Option<String>)>,
    failures: HashMap<RunId, Vec<(TaskIndex, String)>>,
    left: HashMap<TaskId, Left>,
    steps: HashMap<TaskId, Result<Vec<StepRecord>, String>>,
}

impl Facts {
    /// Reads the answers to the questions that were asked.
    pub(super) fn of(names: Named, questions: &Questions, answers: &[Vec<Row>]) -> Self {
        let mut answers = answers.iter();
        let [inputs, ends, failed, left, step_rows] = questions.are_asked().map(|is_asked| {
            let rows = is_asked.then(|| answers.next()).flatten();
            rows.map(Vec::as_slice).unwrap_or_default()
        });
        let input = |row: &Row| {
            let input = Payload::from_json(row.get::<_, &str>(1));
            let round = row.get::<_, i32>(2).cast_unsigned();
            let input = input.map_err(|error| error.to_string());
            (RunId::from_uuid(row.get(0)), Input { input, round, trace: trace_of(row) })
        };
        let inputs = inputs.iter().map(input).collect();
        let end = |row: &Row| {
            let index = TaskIndex(row.get::<_, i32>(1).cast_unsigned());
            let id = TaskId { run: RunId::from_uuid(row.get(0)), index };
            (id, (task_state(row.get(2)), row.get(3)))
        };
        let ends = ends.iter().map(end).collect();
        let mut failures: HashMap<RunId, Vec<(TaskIndex, String)>> = HashMap::new();
        for row in failed {
            let (run, index) = (RunId::from_uuid(row.get(0)), row.get::<_, i32>(1));
            failures.entry(run).or_default().push((TaskIndex(index.cast_unsigned()), row.get(2)));
        }
        let left = read_left(left);
        let mut steps: HashMap<TaskId, Result<Vec<StepRecord>, String>> = HashMap::new();
        for row in step_rows {
            let known = steps.entry(task_id(row)).or_insert_with(|| Ok(Vec::new()));
            match (known.as_mut(), step_of(row)) {
                (Ok(known), Ok(step)) => known.push(step),
                (Ok(_), Err(error)) => *known = Err(error),
                (Err(_), _) => {}
            }
        }
        Facts { names, inputs, ends, failures, left, steps }
    }

    /// What the worker is told of the tasks it was given.
    pub(super) fn tell_all(&self, taken: &[Taken]) -> impl Iterator<Item = Option<Claimed>> {
        let told = |one: &Taken| match self.tell(one) {
            Ok(told) => Some(told),
            // The worker does not know of it, and its next heartbeat hands it back. It must not
            // keep the others from being worked on.
            Err(error) => {
                let run = one.id.run;
                tracing::error!(%run, task = %one.id, error, "a task cannot be handed out");
                None
            }
        };
        taken.iter().map(told)
    }

    /// The same for tasks of which none may be left out.
    pub(super) fn tell_each(&self, taken: &[Taken]) -> Result<Vec<Claimed>, StoreError> {
        let told = |one: &Taken| {
            let wrong = |error| StoreError::Corrupt(format!("task {}: {error}", one.id));
            self.tell(one).map_err(wrong)
        };
        taken.iter().map(told).collect()
    }

    fn tell(&self, one: &Taken) -> Result<Claimed, String> {
        let id = one.id;
        let definition = &self.names.definitions[&one.definition];
        let spec = self.names.spec(one);
        let missing = |what: &str| format!("it has no {what}");
        let parent = |index: &TaskIndex| {
            let parent = TaskId { run: id.run, index: *index };
            let (state, output) = self.ends.get(&parent).ok_or_else(|| missing("parents"))?;
            let state = state.clone()?;
            let has_output = match definition.task(*index).kind {
                TaskKind::Handler | TaskKind::OnFailure => state == TaskState::Succeeded,
                TaskKind::Sleep(_) => false,
            };
            let output =
                has_output.then(|| Payload::from_json(output.as_deref().unwrap_or("null")));
            let wrong = |error| format!("the output of task {parent}: {error}");
            let output = output.transpose().map_err(wrong)?;
            Ok::<_, String>(ParentEnd { index: *index, state, output })
        };
        let failed = match spec.kind {
            TaskKind::OnFailure => {
                self.failures.get(&id.run).map(Vec::as_slice).unwrap_or_default()
            }
            TaskKind::Handler | TaskKind::Sleep(_) => &[],
        };
        let failure = |(index, text): &(TaskIndex, String)| {
            let failure: Failure = serde_json::from_str(text).map_err(|error| error.to_string())?;
            Ok::<_, String>((definition.task(*index).name.clone(), failure))
        };
        let Input { input, round, trace } =
            self.inputs.get(&id.run).ok_or_else(|| missing("input"))?;
        let mut steps = match self.steps.get(&id).cloned() {
            Some(steps) => steps.map_err(|error| format!("a step of it {error}"))?,
            None => Vec::new(),
        };
        let (afresh, input) = match StepRecord::take_input(&mut steps) {
            Some(begun) => begun,
            None => (0, input.clone().map_err(|error| format!("its input: {error}"))?),
        };
        let left = self.left.get(&id).cloned().unwrap_or_default();
        let tenant = self.names.tenants.get(&one.tenant).cloned();
        Ok(Claimed {
            task: id,
            fence: one.fence,
            attempt: one.attempt,
            workflow: definition.name().clone(),
            version: definition.version(),
            spec: spec.clone(),
            tenant: tenant.ok_or_else(|| missing("tenant"))?,
            input,
            parents: spec.parents.iter().map(parent).collect::<Result<_, _>>()?,
            failures: failed.iter().map(failure).collect::<Result<_, _>>()?,
            checkpoint: left.checkpoint,
            last_failure: left.failure,
            steps,
            at: one.at,
            round: *round,
            afresh,
            trace: trace.clone(),
        })
    }
}

fn uuids(runs: &BTreeSet<RunId>) -> Vec<Uuid> {
    runs.iter().map(|run| *run.as_uuid()).collect()
}

/// A stored JSON text.
pub(super) fn payload(text: &str, what: impl Fn() -> String) -> Result<Payload, Fault> {
    let wrong = |error| StoreError::Corrupt(format!("{} {error}", what()));
    Ok(Payload::from_json(text).map_err(wrong)?)
}
