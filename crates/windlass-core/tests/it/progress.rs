//! What follows from the end of a task, on random graphs and on chosen ones.
//!
//! The expectations are written against the states of the parents themselves,
//! never against the counters under test.

use std::time::Duration;

use proptest::prelude::*;
use windlass_core::definition::{TASKS_MAX, TaskDraft};
use windlass_core::{
    Definition, DefinitionDraft, Effect, Progress, RunState, TaskIndex, TaskKind, TaskState,
    Trigger,
};

const TRIGGERS: [Trigger; 4] =
    [Trigger::AllSucceeded, Trigger::AllFinished, Trigger::AnyFailed, Trigger::NoneFailed];

const ENDS: [TaskState; 4] =
    [TaskState::Succeeded, TaskState::Failed, TaskState::Skipped, TaskState::Cancelled];

fn handler(name: &str) -> TaskDraft {
    TaskDraft::new(name, TaskKind::Handler)
}

fn triggered(name: &str, trigger: Trigger, parents: &[&str]) -> TaskDraft {
    let mut task = handler(name);
    task.trigger = trigger;
    task.parents = parents.iter().map(|parent| (*parent).to_owned()).collect();
    task
}

fn build(tasks: impl IntoIterator<Item = TaskDraft>) -> Definition {
    let draft = tasks.into_iter().fold(DefinitionDraft::new("w"), DefinitionDraft::task);
    draft.build().expect("the definition is valid")
}

/// Whether the rule lets a task run whose parents ended like this.
fn rule(trigger: Trigger, parents: &[TaskState]) -> bool {
    let any = |state| parents.contains(&state);
    match trigger {
        Trigger::AllSucceeded => parents.iter().all(|state| *state == TaskState::Succeeded),
        Trigger::AllFinished => true,
        Trigger::AnyFailed => any(TaskState::Failed),
        Trigger::NoneFailed => !any(TaskState::Failed) && !any(TaskState::Cancelled),
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

/// A run that applies effects to states and checks each one on the way.
struct Run {
    definition: Definition,
    states: Vec<TaskState>,
    progress: Progress,
    ended: Option<RunState>,
}

impl Run {
    fn start(definition: Definition) -> Self {
        let states = vec![TaskState::Pending; definition.tasks().len()];
        let (progress, effects) = Progress::start(&definition);
        let mut run = Run { definition, states, progress, ended: None };
        let roots = run.pending_with_ended_parents();
        assert_eq!(effects, roots, "a run begins with exactly its roots");
        run.apply(&effects);
        run
    }

    fn parents(&self, index: TaskIndex) -> Vec<TaskState> {
        let parents = &self.definition.task(index).parents;
        parents.iter().map(|parent| self.states[parent.as_usize()]).collect()
    }

    fn pending_with_ended_parents(&self) -> Vec<Effect> {
        let runs = |index: &TaskIndex| {
            self.states[index.as_usize()] == TaskState::Pending
                && Some(*index) != self.definition.on_failure()
                && self.parents(*index).iter().all(|state| state.is_final())
        };
        self.definition.indices().filter(runs).map(Effect::Unblock).collect()
    }

    /// Whether a pending task is to run, judged when nothing it waits for is open.
    fn is_due_to_run(&self, index: TaskIndex) -> bool {
        if Some(index) == self.definition.on_failure() {
            let others = self.definition.indices().filter(|other| *other != index);
            let others: Vec<_> = others.map(|other| self.states[other.as_usize()]).collect();
            assert!(others.iter().all(|state| state.is_final()), "on-failure came too early");
            return others.contains(&TaskState::Failed);
        }
        let parents = self.parents(index);
        assert!(parents.iter().all(|state| state.is_final()), "a parent has not ended");
        rule(self.definition.task(index).trigger, &parents)
    }

    fn apply(&mut self, effects: &[Effect]) {
        for effect in effects {
            assert_eq!(self.ended, None, "{effect:?} after the end of the run");
            match *effect {
                Effect::Unblock(index) => {
                    assert_eq!(self.states[index.as_usize()], TaskState::Pending);
                    assert!(self.is_due_to_run(index), "{index:?} runs against its rule");
                    self.states[index.as_usize()] = TaskState::Ready;
                }
                Effect::Skip(index) => {
                    assert_eq!(self.states[index.as_usize()], TaskState::Pending);
                    assert!(!self.is_due_to_run(index), "{index:?} is skipped against its rule");
                    self.states[index.as_usize()] = TaskState::Skipped;
                }
                Effect::EndRun(state) => {
                    assert!(self.states.iter().all(|state| state.is_final()));
                    assert_eq!(state, verdict(&self.states));
                    assert_eq!(self.progress.verdict(), state);
                    self.ended = Some(state);
                }
            }
        }
        assert_eq!(self.progress, Progress::recompute(&self.definition, &self.states));
        for index in self.definition.indices() {
            let pending = self.parents(index).iter().filter(|state| !state.is_final()).count();
            assert_eq!(self.progress.parents(index).pending as usize, pending);
        }
    }

    fn end(&mut self, index: TaskIndex, state: TaskState) -> Vec<Effect> {
        self.states[index.as_usize()] = state;
        let effects = self.progress.end(&self.definition, index, state);
        self.apply(&effects);
        effects
    }

    fn ready(&self) -> Vec<TaskIndex> {
        let is_ready = |index: &TaskIndex| self.states[index.as_usize()] == TaskState::Ready;
        self.definition.indices().filter(is_ready).collect()
    }

    /// Ends ready tasks until the run is over; `choices` say which one and how.
    fn drive(&mut self, choices: &mut impl Iterator<Item = (usize, TaskState)>) -> RunState {
        for _ in 0..=self.definition.tasks().len() {
            let ready = self.ready();
            let Some(state) = self.ended else {
                assert!(!ready.is_empty(), "the run hangs: {:?}", self.states);
                assert!(self.progress.open() > 0);
                let (pick, end) = choices.next().expect("there is a choice for each task");
                self.end(ready[pick % ready.len()], end);
                continue;
            };
            assert_eq!(ready, [], "the run ended before its tasks");
            assert_eq!(self.progress.open(), 0);
            return state;
        }
        panic!("a run ended more tasks than it has");
    }

    /// The failed tasks, all that can be reached from them, and the on-failure task.
    fn expected_reset(&self) -> Vec<TaskIndex> {
        let mut reset: Vec<bool> =
            self.states.iter().map(|state| *state == TaskState::Failed).collect();
        for _ in 0..self.states.len() {
            for index in self.definition.indices() {
                let parents = &self.definition.task(index).parents;
                reset[index.as_usize()] |= parents.iter().any(|parent| reset[parent.as_usize()]);
            }
        }
        let is_reset = |index: &TaskIndex| {
            reset[index.as_usize()] || Some(*index) == self.definition.on_failure()
        };
        self.definition.indices().filter(is_reset).collect()
    }

    fn retry(&mut self) {
        let reset = Progress::to_reset(&self.definition, &self.states);
        assert_eq!(reset, self.expected_reset());
        for index in reset {
            self.states[index.as_usize()] = TaskState::Pending;
        }
        let (progress, effects) = Progress::restart(&self.definition, &self.states);
        assert_eq!(effects, self.pending_with_ended_parents());
        assert!(!effects.is_empty(), "a retried run would hang");
        self.progress = progress;
        self.ended = None;
        self.apply(&effects);
    }
}

/// One task of a random graph, before it has a place in a definition.
#[derive(Clone, Debug)]
struct Sketch {
    parents: u16,
    trigger: usize,
    is_sleep: bool,
}

fn sketches() -> impl Strategy<Value = Vec<Sketch>> {
    let task = (any::<u16>(), any::<u16>(), 0..TRIGGERS.len(), any::<bool>()).prop_map(
        |(some, fewer, trigger, is_sleep)| Sketch { parents: some & fewer, trigger, is_sleep },
    );
    prop::collection::vec(task, 1..12)
}

/// A definition in which parents may come before or after their children.
fn definition_of(sketches: &[Sketch], on_failure: Option<usize>, rotate: usize) -> Definition {
    let mut tasks = Vec::new();
    for (i, sketch) in sketches.iter().enumerate() {
        let is_parent = |parent: &usize| sketch.parents & (1 << parent) != 0;
        let kind = match sketch.is_sleep {
            true => TaskKind::Sleep(Duration::from_secs(1)),
            false => TaskKind::Handler,
        };
        let mut task = TaskDraft::new(format!("t{i}"), kind);
        task.parents = (0..i).filter(is_parent).map(|parent| format!("t{parent}")).collect();
        task.trigger = TRIGGERS[sketch.trigger];
        if task.trigger == Trigger::AnyFailed && task.parents.is_empty() {
            // A task without parents cannot wait for one to fail.
            task.trigger = Trigger::NoneFailed;
        }
        tasks.push(task);
    }
    let len = tasks.len();
    tasks.rotate_left(rotate % len);
    if let Some(at) = on_failure {
        tasks.insert(at % (len + 1), TaskDraft::new("sorry", TaskKind::OnFailure));
    }
    build(tasks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_run_ends_with_counters_effects_and_verdict_that_follow_from_the_states(
        sketches in sketches(),
        on_failure in prop::option::of(0..12usize),
        rotate in 0..12usize,
        choices in prop::collection::vec((0..12usize, 0..ENDS.len()), 64),
    ) {
        let mut run = Run::start(definition_of(&sketches, on_failure, rotate));
        run.drive(&mut choices.into_iter().map(|(pick, end)| (pick, ENDS[end])));
    }

    #[test]
    fn a_failed_run_can_be_retried_round_after_round(
        sketches in sketches(),
        on_failure in prop::option::of(0..12usize),
        rotate in 0..12usize,
        choices in prop::collection::vec((0..12usize, 0..3usize), 64),
    ) {
        let mut choices = choices.into_iter().map(|(pick, end)| (pick, ENDS[end]));
        let mut run = Run::start(definition_of(&sketches, on_failure, rotate));
        for _ in 0..4 {
            if run.drive(&mut choices) != RunState::Failed {
                break;
            }
            let before = run.states.clone();
            let reset = Progress::to_reset(&run.definition, &run.states);
            run.retry();
            for index in run.definition.indices().filter(|index| !reset.contains(index)) {
                prop_assert_eq!(run.states[index.as_usize()], before[index.as_usize()]);
            }
        }
    }

    #[test]
    fn a_retry_in_which_everything_succeeds_makes_the_run_succeed(
        sketches in sketches(),
        on_failure in prop::option::of(0..12usize),
        choices in prop::collection::vec((0..12usize, 0..3usize), 16),
    ) {
        let mut choices = choices.into_iter().map(|(pick, end)| (pick, ENDS[end]));
        let mut run = Run::start(definition_of(&sketches, on_failure, 0));
        if run.drive(&mut choices) == RunState::Failed {
            run.retry();
            let all_well = &mut std::iter::repeat((0, TaskState::Succeeded));
            prop_assert_eq!(run.drive(all_well), RunState::Succeeded);
            if let Some(on_failure) = run.definition.on_failure() {
                prop_assert_eq!(run.states[on_failure.as_usize()], TaskState::Skipped);
            }
        }
    }
}

#[test]
fn each_trigger_lets_a_task_run_exactly_for_the_ends_it_names() {
    for trigger in TRIGGERS {
        for left in ENDS {
            for right in ENDS {
                let join = triggered("join", trigger, &["left", "right"]);
                let mut run = Run::start(build([handler("left"), handler("right"), join]));
                assert_eq!(run.end(TaskIndex(0), left), [], "the other parent is open");
                let effects = run.end(TaskIndex(1), right);
                let expected = match rule(trigger, &[left, right]) {
                    true => Effect::Unblock(TaskIndex(2)),
                    false => Effect::Skip(TaskIndex(2)),
                };
                assert_eq!(effects[0], expected, "{trigger:?} after {left} and {right}");
            }
        }
    }
}

#[test]
fn a_failed_root_skips_the_longest_chain_at_once() {
    let names: Vec<String> = (0..TASKS_MAX).map(|i| format!("t{i}")).collect();
    let tasks = names.iter().enumerate().map(|(i, name)| match i {
        0 => handler(name),
        _ => handler(name).after(&names[i - 1]),
    });
    let definition = build(tasks);
    let (mut progress, _) = Progress::start(&definition);
    let effects = progress.end(&definition, TaskIndex(0), TaskState::Failed);
    assert_eq!(effects.len(), TASKS_MAX);
    assert_eq!(effects[0], Effect::Skip(TaskIndex(1)));
    assert_eq!(effects.last(), Some(&Effect::EndRun(RunState::Failed)));
    assert_eq!(progress.open(), 0);
}

#[test]
fn a_side_branch_that_mends_a_failure_runs_and_the_run_has_failed_still() {
    let mend = triggered("mend", Trigger::AnyFailed, &["work"]);
    let mut run = Run::start(build([handler("work"), mend, handler("rest").after("work")]));
    let effects = run.end(TaskIndex(0), TaskState::Failed);
    assert_eq!(effects, [Effect::Unblock(TaskIndex(1)), Effect::Skip(TaskIndex(2))]);
    let effects = run.end(TaskIndex(1), TaskState::Succeeded);
    assert_eq!(effects, [Effect::EndRun(RunState::Failed)]);
}

#[test]
fn an_on_failure_task_runs_last_if_something_failed_and_is_skipped_otherwise() {
    let tasks = || [TaskDraft::new("sorry", TaskKind::OnFailure), handler("a"), handler("b")];
    let mut failing = Run::start(build(tasks()));
    assert_eq!(failing.progress.open(), 2, "it does not count before it may run");
    assert_eq!(failing.end(TaskIndex(1), TaskState::Failed), []);
    let effects = failing.end(TaskIndex(2), TaskState::Succeeded);
    assert_eq!(effects, [Effect::Unblock(TaskIndex(0))]);
    assert_eq!(failing.progress.open(), 1);
    let effects = failing.end(TaskIndex(0), TaskState::Succeeded);
    assert_eq!(effects, [Effect::EndRun(RunState::Failed)]);

    let mut fine = Run::start(build(tasks()));
    assert_eq!(fine.end(TaskIndex(1), TaskState::Succeeded), []);
    let effects = fine.end(TaskIndex(2), TaskState::Skipped);
    assert_eq!(effects, [Effect::Skip(TaskIndex(0)), Effect::EndRun(RunState::Succeeded)]);
}

#[test]
fn a_retry_begins_with_the_failed_task_and_keeps_what_succeeded() {
    let tasks = [
        handler("a"),
        handler("b").after("a"),
        handler("c").after("b"),
        handler("d").after("a"),
        TaskDraft::new("sorry", TaskKind::OnFailure),
    ];
    let mut run = Run::start(build(tasks));
    run.end(TaskIndex(0), TaskState::Succeeded);
    run.end(TaskIndex(1), TaskState::Failed);
    run.end(TaskIndex(3), TaskState::Succeeded);
    run.end(TaskIndex(4), TaskState::Succeeded);
    assert_eq!(run.ended, Some(RunState::Failed));
    let reset = Progress::to_reset(&run.definition, &run.states);
    assert_eq!(reset, [1, 2, 4].map(TaskIndex));
    run.retry();
    assert_eq!(run.ready(), [TaskIndex(1)]);
    assert_eq!(run.progress.open(), 2);
}

#[test]
fn a_retry_waits_for_what_it_begins_anew_and_the_on_failure_task_for_everything() {
    let tasks = [
        handler("a"),
        handler("b").after("a"),
        handler("c"),
        TaskDraft::new("sorry", TaskKind::OnFailure),
    ];
    let definition = build(tasks);
    let reset = [TaskIndex(0), TaskIndex(1), TaskIndex(3)];
    let is_behind = |index| Progress::is_behind(&definition, &reset, TaskIndex(index));
    assert_eq!([0, 1, 2, 3].map(is_behind), [false, true, false, true]);
}
