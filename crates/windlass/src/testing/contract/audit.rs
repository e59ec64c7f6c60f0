//! What must hold for every run after every case, whatever the case was about:
//! the history is a chain of legal moves, and counters equal what they count.

use windlass_core::state::TASK_TRANSITIONS;
use windlass_core::{
    Definition, Event, EventBody, Fence, Progress, RunEvent, RunEventKind, RunId, RunState,
    TaskCommand, TaskEvent, TaskEventKind, TaskKind, TaskState,
};

use super::bench::Bench;
use crate::store::{RunRecord, TaskRecord};

impl Bench<'_> {
    /// Audits every run the case started.
    pub(crate) async fn audit(&self) {
        for (run, definition) in self.runs() {
            let record = self.run(run).await;
            let tasks = self.tasks(run).await;
            let events = self.events(run).await;
            audit_record(&definition, &record, &tasks);
            audit_history(&definition, &record, &tasks, &events);
        }
    }
}

fn audit_record(definition: &Definition, run: &RunRecord, tasks: &[TaskRecord]) {
    let id = run.id;
    assert_eq!(tasks.len(), definition.tasks().len(), "tasks of run {id}");
    let states: Vec<TaskState> = tasks.iter().map(|task| task.state).collect();
    let progress = Progress::recompute(definition, &states);
    assert_eq!(run.open_tasks, progress.open(), "open tasks of run {id}: {states:?}");
    let expected = match progress.open() {
        0 => progress.verdict(),
        _ => RunState::Running,
    };
    assert_eq!(run.state, expected, "state of run {id}: {states:?}");
    assert_eq!(run.ended_at.is_some(), run.state.is_final(), "end of run {id}");
    for (task, index) in tasks.iter().zip(definition.indices()) {
        let name = &task.name;
        assert_eq!(task.index, index, "tasks are sorted by index");
        assert_eq!(*name, definition.task(index).name);
        let pending = progress.parents(index).pending;
        assert_eq!(task.pending_parents, pending, "pending parents of {name:?}");
        let is = |state| task.state == state;
        assert_eq!(task.worker.is_some(), is(TaskState::Running), "worker of {name:?}");
        assert_eq!(task.available_at.is_some(), is(TaskState::Scheduled), "time of {name:?}");
        let is_sleep = matches!(definition.task(index).kind, TaskKind::Sleep(_));
        let has_output = is(TaskState::Succeeded) && !is_sleep;
        assert_eq!(task.output.is_some(), has_output, "output of {name:?}");
        if is(TaskState::Failed) {
            assert!(task.failure.is_some(), "failed task {name:?} has no failure");
        }
    }
}

fn audit_history(definition: &Definition, run: &RunRecord, tasks: &[TaskRecord], events: &[Event]) {
    let id = run.id;
    for pair in events.windows(2) {
        assert!(pair[0].id < pair[1].id, "event ids of run {id} do not grow");
        assert!(pair[0].at <= pair[1].at, "run {id} goes back in time: {pair:?}");
    }
    let mut replay = Replay::new(definition, id);
    for event in events {
        assert_eq!(event.run, id, "an event of another run");
        match &event.body {
            EventBody::Run(body) => replay.run_event(body),
            EventBody::Task(body) => replay.task_event(body),
        }
    }
    assert_eq!(replay.state, Some(run.state), "run {id} and its history differ");
    assert_eq!(replay.round, run.round, "round of run {id}");
    for (task, chain) in tasks.iter().zip(&replay.tasks) {
        let stored = Chain { state: task.state, fence: task.fence, attempt: task.attempt };
        assert_eq!(*chain, stored, "task {:?} of run {id} and its history differ", task.name);
    }
}

/// Where a task is after the events so far.
#[derive(Debug, PartialEq, Eq)]
struct Chain {
    state: TaskState,
    fence: Fence,
    attempt: u32,
}

struct Replay<'a> {
    definition: &'a Definition,
    id: RunId,
    state: Option<RunState>,
    round: u32,
    tasks: Vec<Chain>,
}

impl<'a> Replay<'a> {
    fn new(definition: &'a Definition, id: RunId) -> Self {
        let fresh = || Chain { state: TaskState::Pending, fence: Fence(0), attempt: 0 };
        let tasks = definition.indices().map(|_| fresh()).collect();
        Replay { definition, id, state: None, round: 1, tasks }
    }

    fn run_event(&mut self, event: &RunEvent) {
        assert_eq!(event.from, self.state, "run {} jumps: {event:?}", self.id);
        let expected = match &event.kind {
            RunEventKind::Started => {
                assert_eq!(self.state, None, "run {} starts twice", self.id);
                RunState::Running
            }
            RunEventKind::Ended => {
                assert!(self.tasks.iter().all(|task| task.state.is_final()), "{event:?}");
                assert!(matches!(event.to, RunState::Succeeded | RunState::Failed), "{event:?}");
                event.to
            }
            RunEventKind::Cancelled { .. } => RunState::Cancelled,
            RunEventKind::Retried { round } => {
                assert_eq!(*round, self.round + 1, "rounds of run {}", self.id);
                self.round = *round;
                RunState::Running
            }
        };
        assert_eq!(event.to, expected, "{event:?}");
        self.state = Some(event.to);
    }

    fn task_event(&mut self, event: &TaskEvent) {
        let at = event.task.as_usize();
        let spec = self.definition.task(event.task);
        assert_eq!(event.name, spec.name);
        let chain = &self.tasks[at];
        assert_eq!(event.from, chain.state, "task {:?} jumps: {event:?}", event.name);
        let is_legal = commands(&event.kind)
            .iter()
            .any(|command| TASK_TRANSITIONS.contains(&(event.from, *command, event.to)));
        assert!(is_legal, "illegal move: {event:?}");
        let (fence, attempt) = match &event.kind {
            TaskEventKind::Started { .. } => (chain.fence.next(), chain.attempt + 1),
            TaskEventKind::Released { .. } => (chain.fence, chain.attempt - 1),
            TaskEventKind::Reset => (chain.fence, 0),
            TaskEventKind::Queued
            | TaskEventKind::Delayed { .. }
            | TaskEventKind::Sleeping { .. }
            | TaskEventKind::Woken
            | TaskEventKind::Succeeded
            | TaskEventKind::Failed { .. }
            | TaskEventKind::Retrying { .. }
            | TaskEventKind::LeaseExpired { .. }
            | TaskEventKind::Skipped
            | TaskEventKind::Cancelled => (chain.fence, chain.attempt),
        };
        assert_eq!((event.fence, event.attempt), (fence, attempt), "{event:?} after {chain:?}");
        if matches!(event.kind, TaskEventKind::Started { .. }) {
            assert_eq!(self.state, Some(RunState::Running), "{event:?} in a run that ended");
            let limit = spec.retry.max_attempts();
            assert!(attempt <= limit, "attempt {attempt} of {limit} of task {:?}", event.name);
            for parent in &spec.parents {
                let state = self.tasks[parent.as_usize()].state;
                assert!(state.is_final(), "{event:?} while its parent is {state}");
            }
        }
        self.tasks[at] = Chain { state: event.to, fence, attempt };
    }
}

/// The commands an event can be the record of.
fn commands(kind: &TaskEventKind) -> &'static [TaskCommand] {
    match kind {
        TaskEventKind::Queued => &[TaskCommand::Queue, TaskCommand::Promote],
        TaskEventKind::Delayed { .. } | TaskEventKind::Sleeping { .. } => &[TaskCommand::Schedule],
        TaskEventKind::Woken => &[TaskCommand::Wake],
        TaskEventKind::Started { .. } => &[TaskCommand::Claim],
        TaskEventKind::Succeeded => &[TaskCommand::Succeed],
        TaskEventKind::Failed { .. } => &[TaskCommand::Fail],
        TaskEventKind::Retrying { .. } => &[TaskCommand::Retry],
        TaskEventKind::Released { until: None } => &[TaskCommand::Release],
        TaskEventKind::Released { until: Some(_) } => &[TaskCommand::Defer],
        TaskEventKind::LeaseExpired { failure: None, .. } => &[TaskCommand::Expire],
        TaskEventKind::LeaseExpired { failure: Some(_), .. } => &[TaskCommand::Fail],
        TaskEventKind::Skipped => &[TaskCommand::Skip],
        TaskEventKind::Cancelled => &[TaskCommand::Cancel],
        TaskEventKind::Reset => &[TaskCommand::Reset],
    }
}
