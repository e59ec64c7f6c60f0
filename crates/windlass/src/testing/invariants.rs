//! The promises that a run's history can be held to.
//!
//! [`check_run`] walks a history from its first event, keeps its own idea of every
//! task's state, and compares what is written and what is stored with it. It
//! shares with the stores the table of transitions and, for the counters that are
//! stored, `Progress::recompute`.

use std::fmt;

use windlass_core::progress::ParentTally;
use windlass_core::state::TASK_TRANSITIONS;
use windlass_core::{
    Definition, Event, EventBody, Fence, Progress, RunEvent, RunEventKind, RunState, TaskCommand,
    TaskEvent, TaskEventKind, TaskIndex, TaskKind, TaskState, Timestamp, Trigger,
};

use crate::store::{RunRecord, TaskRecord};

/// A promise that was broken, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise, such as `G7 parents first`.
    pub promise: &'static str,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.text)
    }
}

const ORDER: &str = "G2 states only move forward";
const ONCE: &str = "G3 effectively-once completion";
const FENCES: &str = "G4 fences only grow";
const PARENTS: &str = "G7 parents first";
const ENDS: &str = "G8 every run ends, counters are right";
const ATTEMPTS: &str = "G9 attempts are bounded";
const RECOVERY: &str = "G10 leases are kept while they last";
const TIMERS: &str = "G11 timers never early";

/// What the walk knows of a task.
struct Seen {
    state: TaskState,
    fence: Fence,
    /// Starts of this round that were not handed back.
    starts: u32,
    finals: u32,
    until: Option<Timestamp>,
}

struct Walk<'a> {
    definition: &'a Definition,
    tasks: Vec<Seen>,
    run: Option<RunState>,
    round: u32,
    /// The tasks that the last retry of the run may begin anew.
    to_reset: Vec<bool>,
    violations: Vec<Violation>,
}

/// Checks a run's whole history, and what is stored of the run and its tasks,
/// against the promises G2 to G4, G7 to G9 and G11.
pub fn check_run(
    definition: &Definition,
    run: &RunRecord,
    tasks: &[TaskRecord],
    events: &[Event],
) -> Vec<Violation> {
    let seen = |_: TaskIndex| Seen {
        state: TaskState::Pending,
        fence: Fence(0),
        starts: 0,
        finals: 0,
        until: None,
    };
    let mut walk = Walk {
        definition,
        tasks: definition.indices().map(seen).collect(),
        run: None,
        round: 1,
        to_reset: vec![false; definition.tasks().len()],
        violations: Vec::new(),
    };
    for pair in events.windows(2) {
        if pair[0].id >= pair[1].id || pair[0].at > pair[1].at {
            walk.violate(ORDER, format!("{:?} is recorded after {:?}", pair[1], pair[0]));
        }
    }
    for event in events {
        match &event.body {
            EventBody::Run(body) => walk.run_event(body),
            EventBody::Task(body) => walk.task_event(event.at, body),
        }
    }
    walk.compare(run, tasks);
    let name = |text: String| format!("run {}: {text}", run.id);
    let named = walk.violations.into_iter();
    named.map(|v| Violation { promise: v.promise, text: name(v.text) }).collect()
}

impl Walk<'_> {
    fn violate(&mut self, promise: &'static str, text: String) {
        self.violations.push(Violation { promise, text });
    }

    fn states(&self) -> Vec<TaskState> {
        self.tasks.iter().map(|task| task.state).collect()
    }

    fn run_event(&mut self, event: &RunEvent) {
        if event.from != self.run {
            self.violate(ORDER, format!("{event:?} follows {:?}", self.run));
        }
        self.run = Some(event.to);
        match &event.kind {
            RunEventKind::Started | RunEventKind::Undoing { .. } => {}
            RunEventKind::Retried { round } => {
                if *round != self.round + 1 {
                    self.violate(ORDER, format!("round {round} follows round {}", self.round));
                }
                self.round = *round;
                self.tasks.iter_mut().for_each(|task| task.finals = 0);
                self.to_reset = self.behind_failures();
            }
            RunEventKind::Continued { round } => {
                if *round != self.round + 1 {
                    self.violate(ORDER, format!("round {round} follows round {}", self.round));
                }
                self.round = *round;
            }
            RunEventKind::Ended | RunEventKind::Cancelled { .. } => {
                let states = self.states();
                if let Some(open) = states.iter().position(|state| !state.is_final()) {
                    let name = &self.definition.tasks()[open].name;
                    let text = format!("it ended while {name:?} was {}", states[open]);
                    self.violate(ENDS, text);
                } else if event.to != verdict(&states) {
                    self.violate(ENDS, format!("it ended {} with tasks {states:?}", event.to));
                }
            }
        }
    }

    fn task_event(&mut self, at: Timestamp, event: &TaskEvent) {
        let index = event.task;
        let described = format!("task {:?} {} at {at}", event.name, event.kind.word());
        if self.run != Some(RunState::Running) {
            self.violate(ORDER, format!("{described} while the run is {:?}", self.run));
        }
        let is_listed = commands(&event.kind)
            .iter()
            .any(|command| TASK_TRANSITIONS.contains(&(event.from, *command, event.to)));
        let before = self.tasks[index.as_usize()].state;
        if event.from != before || !is_listed {
            let text = format!("{described}: {} → {} after {before}", event.from, event.to);
            self.violate(ORDER, text);
        }
        if event.from == TaskState::Pending {
            self.check_trigger(event, &described);
        }
        self.check_fence(event, &described);
        self.check_times(at, event, &described);
        let task = &mut self.tasks[index.as_usize()];
        task.state = event.to;
        task.finals += u32::from(event.to.is_final());
        if task.finals > 1 {
            self.violate(ORDER, format!("{described}, its second end in round {}", self.round));
        }
    }

    /// A task leaves `pending` only when its parents have ended, and then as its
    /// trigger says.
    fn check_trigger(&mut self, event: &TaskEvent, described: &str) {
        if event.to == TaskState::Cancelled {
            return;
        }
        let spec = self.definition.task(event.task);
        let (is_decided, runs) = match spec.kind {
            TaskKind::OnFailure => {
                let mut others = self.tasks.iter().enumerate();
                let is_decided =
                    others.all(|(at, task)| at == event.task.as_usize() || task.state.is_final());
                (is_decided, self.tasks.iter().any(|task| task.state == TaskState::Failed))
            }
            TaskKind::Handler | TaskKind::Sleep(_) => {
                let parents = self.tally(&spec.parents);
                (parents.pending == 0, lets_run(spec.trigger, parents))
            }
        };
        if !is_decided || runs != (event.to != TaskState::Skipped) {
            let (trigger, parents) = (spec.trigger, self.tally(&spec.parents));
            self.violate(PARENTS, format!("{described} with trigger {trigger:?} and {parents:?}"));
        }
    }

    /// The failed tasks, all that depends on them, and the on-failure task.
    fn behind_failures(&self) -> Vec<bool> {
        let mut found: Vec<bool> =
            self.tasks.iter().map(|task| task.state == TaskState::Failed).collect();
        let mut next: Vec<TaskIndex> =
            self.definition.indices().filter(|index| found[index.as_usize()]).collect();
        while let Some(task) = next.pop() {
            for child in self.definition.children(task) {
                if !std::mem::replace(&mut found[child.as_usize()], true) {
                    next.push(*child);
                }
            }
        }
        if let Some(on_failure) = self.definition.on_failure() {
            found[on_failure.as_usize()] = true;
        }
        found
    }

    fn tally(&self, parents: &[TaskIndex]) -> ParentTally {
        let count = |wanted: fn(TaskState) -> bool| {
            let states = parents.iter().map(|parent| self.tasks[parent.as_usize()].state);
            states.filter(|state| wanted(*state)).count() as u32
        };
        ParentTally {
            pending: count(|state| !state.is_final()),
            failed: count(|state| state == TaskState::Failed),
            skipped: count(|state| state == TaskState::Skipped),
            cancelled: count(|state| state == TaskState::Cancelled),
        }
    }

    fn check_fence(&mut self, event: &TaskEvent, described: &str) {
        let max_attempts = self.definition.task(event.task).retry.max_attempts();
        let task = &mut self.tasks[event.task.as_usize()];
        let (newest, starts) = (task.fence, task.starts);
        match &event.kind {
            TaskEventKind::Started { .. } => {
                task.fence = event.fence;
                task.starts += 1;
                if event.fence <= newest {
                    let text = format!("{described} with fence {} after {newest}", event.fence);
                    self.violate(FENCES, text);
                }
                if event.attempt > max_attempts || event.attempt != starts + 1 {
                    let text = format!(
                        "{described} as attempt {} of {max_attempts} after {starts} starts",
                        event.attempt
                    );
                    self.violate(ATTEMPTS, text);
                }
            }
            TaskEventKind::Released { .. } => task.starts -= 1,
            TaskEventKind::Parked { .. } | TaskEventKind::Continued => task.starts = 0,
            TaskEventKind::Reset => {
                task.starts = 0;
                if !self.to_reset[event.task.as_usize()] {
                    self.violate(ORDER, format!("{described}, and it depends on no failure"));
                }
            }
            TaskEventKind::Succeeded
            | TaskEventKind::Failed { .. }
            | TaskEventKind::Retrying { .. }
            | TaskEventKind::LeaseExpired { .. }
            | TaskEventKind::Skipped
            | TaskEventKind::Cancelled
            | TaskEventKind::Queued
            | TaskEventKind::Delayed { .. }
            | TaskEventKind::Blocked { .. }
            | TaskEventKind::Sleeping { .. }
            | TaskEventKind::Resumed
            | TaskEventKind::Woken => {}
        }
        if event.fence != self.tasks[event.task.as_usize()].fence {
            let text = format!("{described} with fence {}, the newest is {newest}", event.fence);
            self.violate(ONCE, text);
        }
    }

    fn check_times(&mut self, at: Timestamp, event: &TaskEvent, described: &str) {
        let task = &mut self.tasks[event.task.as_usize()];
        let due = task.until.take();
        match &event.kind {
            TaskEventKind::Delayed { until }
            | TaskEventKind::Sleeping { until }
            | TaskEventKind::Retrying { until, .. } => task.until = Some(*until),
            TaskEventKind::Released { until } | TaskEventKind::Parked { until } => {
                task.until = *until;
            }
            TaskEventKind::Queued | TaskEventKind::Blocked { .. } | TaskEventKind::Woken => {
                if due.is_some_and(|due| at < due) {
                    self.violate(TIMERS, format!("{described}, due {due:?}"));
                }
            }
            TaskEventKind::LeaseExpired { lease_until, .. } => {
                if at < *lease_until {
                    let text = format!("{described}, the lease lasted until {lease_until}");
                    self.violate(RECOVERY, text);
                }
            }
            TaskEventKind::Started { .. }
            | TaskEventKind::Continued
            | TaskEventKind::Succeeded
            | TaskEventKind::Failed { .. }
            | TaskEventKind::Skipped
            | TaskEventKind::Cancelled
            | TaskEventKind::Resumed
            | TaskEventKind::Reset => {}
        }
    }

    /// What is stored is what the history leads to, and the counters count it.
    fn compare(&mut self, run: &RunRecord, records: &[TaskRecord]) {
        if Some(run.state) != self.run || run.round != self.round {
            let text = format!("stored {} round {}, written {:?}", run.state, run.round, self.run);
            self.violate(ENDS, text);
        }
        let states = self.states();
        let progress = Progress::recompute(self.definition, &states);
        if run.open_tasks != progress.open() {
            let text = format!("open_tasks is {}, counted {}", run.open_tasks, progress.open());
            self.violate(ENDS, text);
        }
        if run.ended_at.is_some() != run.state.is_final() {
            self.violate(ENDS, format!("it is {} and ended at {:?}", run.state, run.ended_at));
        }
        if !records.iter().map(|record| record.index).eq(self.definition.indices()) {
            self.violate(ENDS, format!("it has {} tasks, or not in order", records.len()));
            return;
        }
        for record in records {
            let task = &self.tasks[record.index.as_usize()];
            let spec = self.definition.task(record.index);
            let is = |state| task.state == state;
            // When who waits first in a lane is looked at again is not in its history.
            let may_have_alarm = is(TaskState::Waiting) && spec.has_metered_limits();
            let has_output = is(TaskState::Succeeded) && !matches!(spec.kind, TaskKind::Sleep(_));
            let is_right = record.name == spec.name
                && is(record.state)
                && record.fence == task.fence
                && record.attempt == task.starts
                && record.pending_parents == progress.parents(record.index).pending
                && record.worker.is_some() == is(TaskState::Running)
                && (record.available_at == task.until || may_have_alarm)
                && record.output.is_some() == has_output
                && (record.failure.is_some() || !is(TaskState::Failed));
            if !is_right {
                let text = format!("stored {record:?}, the history leads elsewhere");
                self.violate(ENDS, text);
            }
        }
    }
}

/// The commands that an event can be the record of.
fn commands(kind: &TaskEventKind) -> &'static [TaskCommand] {
    match kind {
        TaskEventKind::Queued => &[TaskCommand::Queue, TaskCommand::Promote],
        TaskEventKind::Delayed { .. } | TaskEventKind::Sleeping { .. } => &[TaskCommand::Schedule],
        TaskEventKind::Blocked { .. } => &[TaskCommand::Block],
        TaskEventKind::Woken => &[TaskCommand::Wake],
        TaskEventKind::Started { .. } => &[TaskCommand::Claim],
        TaskEventKind::Succeeded => &[TaskCommand::Succeed],
        TaskEventKind::Failed { .. } => &[TaskCommand::Fail],
        TaskEventKind::Retrying { .. } => &[TaskCommand::Retry],
        TaskEventKind::Released { until: None } => &[TaskCommand::Release],
        TaskEventKind::Released { until: Some(_) } => &[TaskCommand::Defer],
        TaskEventKind::Parked { .. } => &[TaskCommand::Sleep, TaskCommand::Await],
        TaskEventKind::Resumed => &[TaskCommand::Resume],
        TaskEventKind::Continued => &[TaskCommand::Continue],
        TaskEventKind::LeaseExpired { failure: None, .. } => &[TaskCommand::Expire],
        TaskEventKind::LeaseExpired { failure: Some(_), .. } => &[TaskCommand::Fail],
        TaskEventKind::Skipped => &[TaskCommand::Skip],
        TaskEventKind::Cancelled => &[TaskCommand::Cancel],
        TaskEventKind::Reset => &[TaskCommand::Reset],
    }
}

/// The triggers once more, in the words of their docs.
fn lets_run(trigger: Trigger, parents: ParentTally) -> bool {
    let ParentTally { pending: _, failed, skipped, cancelled } = parents;
    match trigger {
        Trigger::AllSucceeded => failed + skipped + cancelled == 0,
        Trigger::AllFinished => true,
        Trigger::AnyFailed => failed >= 1,
        Trigger::NoneFailed => failed + cancelled == 0,
    }
}

fn verdict(states: &[TaskState]) -> RunState {
    if states.contains(&TaskState::Cancelled) {
        RunState::Cancelled
    } else if states.contains(&TaskState::Failed) {
        RunState::Failed
    } else {
        RunState::Succeeded
    }
}
