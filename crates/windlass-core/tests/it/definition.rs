//! What a draft must be to become a definition, and what is said when it is not.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use proptest::prelude::*;
use windlass_core::definition::{EDGES_MAX, TASKS_MAX, TaskDraft, TaskProblem};
use windlass_core::name::NAME_BYTES_MAX;
use windlass_core::retry::{ATTEMPTS_MAX, RetryError, WAIT_MAX};
use windlass_core::{
    Definition, DefinitionDraft, DefinitionError, Priority, RetryPolicy, TaskIndex, TaskKind,
    Trigger, Version,
};

fn handler(name: &str) -> TaskDraft {
    TaskDraft::new(name, TaskKind::Handler)
}

fn draft(tasks: impl IntoIterator<Item = TaskDraft>) -> DefinitionDraft {
    tasks.into_iter().fold(DefinitionDraft::new("w"), DefinitionDraft::task)
}

fn build(tasks: impl IntoIterator<Item = TaskDraft>) -> Definition {
    draft(tasks).build().expect("the definition is valid")
}

fn refusal(tasks: impl IntoIterator<Item = TaskDraft>) -> String {
    draft(tasks).build().expect_err("the definition is wrong").to_string()
}

/// `count` tasks, each the parent of the next.
fn chain(count: usize) -> Vec<TaskDraft> {
    let task = |i: usize| match i {
        0 => handler("t0"),
        _ => handler(&format!("t{i}")).after(format!("t{}", i - 1)),
    };
    (0..count).map(task).collect()
}

#[test]
fn a_definition_knows_its_tasks_by_index_and_by_name() {
    let mut sleepy = draft([
        handler("charge"),
        TaskDraft::new("window", TaskKind::Sleep(Duration::from_secs(1))).after("charge"),
        handler("ship").after("window").after("charge"),
        TaskDraft::new("apologise", TaskKind::OnFailure),
    ]);
    sleepy.version = Version::new(7).expect("seven is not zero");
    let definition = sleepy.build().expect("the definition is valid");
    assert_eq!(definition.name().as_str(), "w");
    assert_eq!(definition.version().get(), 7);
    assert_eq!(definition.indices().collect::<Vec<_>>(), [0, 1, 2, 3].map(TaskIndex));
    assert_eq!(definition.index_of("ship"), Some(TaskIndex(2)));
    assert_eq!(definition.index_of("sell"), None);
    assert_eq!(definition.task(TaskIndex(2)).parents, [TaskIndex(0), TaskIndex(1)]);
    assert_eq!(definition.children(TaskIndex(0)), [TaskIndex(1), TaskIndex(2)]);
    assert_eq!(definition.children(TaskIndex(3)), []);
    assert_eq!(definition.on_failure(), Some(TaskIndex(3)));
    assert_eq!(build([handler("a")]).on_failure(), None);
}

#[test]
fn a_parent_named_twice_is_one_edge() {
    let definition = build([handler("a"), handler("b").after("a").after("a").after("a")]);
    assert_eq!(definition.task(TaskIndex(1)).parents, [TaskIndex(0)]);
    assert_eq!(definition.children(TaskIndex(0)), [TaskIndex(1)]);
}

#[test]
fn a_workflow_name_that_cannot_be_used_is_refused() {
    let named = |name: &str| DefinitionDraft::new(name).task(handler("a")).build();
    let message = |name: &str| named(name).expect_err("the name is wrong").to_string();
    assert_eq!(message(""), "workflow name is empty");
    assert_eq!(message("a\tb"), r#"workflow name "a\tb" has a control character at byte 1"#);
    assert!(named(&"x".repeat(NAME_BYTES_MAX)).is_ok());
    assert_eq!(
        message(&"x".repeat(NAME_BYTES_MAX + 1)),
        r#"workflow name "xxxxxxxxxxxxxxxxxxxxxxxx"… has 201 bytes, the limit is 200"#
    );
}

#[test]
fn a_workflow_without_tasks_is_refused() {
    assert_eq!(refusal([]), r#"workflow "w" has no tasks"#);
}

#[test]
fn the_largest_chain_builds_and_one_task_more_does_not() {
    let definition = build(chain(TASKS_MAX));
    assert_eq!(definition.tasks().len(), TASKS_MAX);
    let last = TaskIndex::from_usize(TASKS_MAX - 1);
    assert_eq!(definition.task(last).parents.len(), 1);
    assert_eq!(
        refusal(chain(TASKS_MAX + 1)),
        r#"workflow "w" has 50001 tasks, the limit is 50000"#
    );
}

#[test]
fn edges_up_to_the_limit_build_and_one_more_does_not() {
    let roots = 500;
    let mut tasks: Vec<_> = (0..roots).map(|i| handler(&format!("root{i}"))).collect();
    for i in 0..EDGES_MAX / roots {
        let mut child = handler(&format!("child{i}"));
        child.parents = (0..roots).map(|i| format!("root{i}")).collect();
        tasks.push(child);
    }
    let definition = build(tasks.clone());
    assert_eq!(definition.children(TaskIndex(0)).len(), EDGES_MAX / roots);
    // The limit bounds the work of the checks, so a repeated edge counts.
    let last = tasks.pop().expect("there are children");
    tasks.push(last.after("root0"));
    assert_eq!(refusal(tasks), r#"workflow "w" has 500001 edges, the limit is 500000"#);
}

#[test]
fn every_problem_of_one_task_names_workflow_task_and_reason() {
    let with = |change: fn(&mut TaskDraft)| {
        let mut task = handler("b");
        change(&mut task);
        vec![handler("a"), task]
    };
    let sleep = |duration| vec![TaskDraft::new("b", TaskKind::Sleep(duration))];
    let on_failure = |name: &str| TaskDraft::new(name, TaskKind::OnFailure);
    let cases = [
        (vec![handler("")], r#"workflow "w", task "": task name is empty"#),
        (
            vec![handler("a\0")],
            r#"workflow "w", task "a\0": task name "a\0" has a control character at byte 1"#,
        ),
        (with(|task| task.queue.clear()), r#"workflow "w", task "b": queue name is empty"#),
        (with(|task| task.name = "a".into()), r#"workflow "w", task "a": the name is used twice"#),
        (vec![handler("b").after("b")], r#"workflow "w", task "b": it is its own parent"#),
        (
            vec![handler("a"), handler("b").after("a").after("c")],
            r#"workflow "w", task "b": its parent "c" is not a task of this workflow"#,
        ),
        (
            with(|task| task.retry = RetryPolicy::none().attempts(0)),
            r#"workflow "w", task "b": attempts is 0, not within 1 to 10000"#,
        ),
        (
            with(|task| task.retry = RetryPolicy::none().factor(0.5)),
            r#"workflow "w", task "b": factor is 0.5, not a finite number of at least 1"#,
        ),
        (
            with(|task| task.retry = RetryPolicy::none().jitter(1.5)),
            r#"workflow "w", task "b": jitter is 1.5, not within 0 to 1"#,
        ),
        (
            with(|task| {
                task.retry = RetryPolicy::none().delay_max(WAIT_MAX + Duration::from_secs(1));
            }),
            r#"workflow "w", task "b": the largest delay is 3153600001s, the limit is 3153600000s"#,
        ),
        (
            with(|task| task.timeout = Some(Duration::ZERO)),
            r#"workflow "w", task "b": the timeout is zero"#,
        ),
        (
            sleep(WAIT_MAX + Duration::from_secs(1)),
            r#"workflow "w", task "b": it sleeps 3153600001s, the limit is 3153600000s"#,
        ),
        (
            vec![on_failure("x"), handler("a"), on_failure("y")],
            r#"workflow "w", task "y": "x" is the on-failure task already"#,
        ),
        (
            vec![handler("a"), on_failure("x").after("a")],
            r#"workflow "w", task "x": an on-failure task cannot have parents"#,
        ),
        (
            vec![handler("a").after("x"), on_failure("x")],
            r#"workflow "w", task "a": its parent "x" is the on-failure task"#,
        ),
        (
            with(|task| task.trigger = Trigger::AnyFailed),
            r#"workflow "w", task "b": it runs when a parent failed, and has no parents"#,
        ),
    ];
    for (tasks, message) in cases {
        assert_eq!(refusal(tasks), message);
    }
}

#[test]
fn a_problem_can_be_told_apart_by_a_program() {
    let error = draft([handler("a").after("b")]).build().expect_err("b is missing");
    let problem = TaskProblem::UnknownParent("b".into());
    let (workflow, task) = ("w".into(), "a".into());
    assert_eq!(error, DefinitionError::Task { workflow, task, problem });
}

#[test]
fn policies_at_their_limits_are_accepted() {
    let mut task = handler("b");
    task.retry = RetryPolicy::exponential().attempts(ATTEMPTS_MAX).delay_max(WAIT_MAX);
    task.timeout = Some(Duration::from_nanos(1));
    task.queue = "q".repeat(NAME_BYTES_MAX);
    task.priority = Priority::MIN;
    let longest = TaskDraft::new("s", TaskKind::Sleep(WAIT_MAX));
    let shortest = TaskDraft::new("z", TaskKind::Sleep(Duration::ZERO));
    assert_eq!(build([task.clone(), longest, shortest]).tasks().len(), 3);
    task.retry = task.retry.attempts(ATTEMPTS_MAX + 1);
    let problem = TaskProblem::Retry(RetryError::Attempts(ATTEMPTS_MAX + 1));
    let (workflow, name) = ("w".into(), "b".into());
    let error = draft([task]).build().expect_err("one attempt too many");
    assert_eq!(error, DefinitionError::Task { workflow, task: name, problem });
}

#[test]
fn a_cycle_is_named_in_the_direction_of_its_edges_from_the_task_written_first() {
    let two = [handler("a").after("b"), handler("b").after("a")];
    assert_eq!(refusal(two), r#"workflow "w" has a cycle: "a" → "b" → "a""#);
    let three = [handler("c").after("b"), handler("a").after("c"), handler("b").after("a")];
    assert_eq!(refusal(three), r#"workflow "w" has a cycle: "c" → "a" → "b" → "c""#);
}

#[test]
fn a_cycle_beside_and_below_valid_parts_is_found_without_them() {
    let tasks = [
        handler("root"),
        handler("leaf").after("y"),
        handler("x").after("root").after("y"),
        handler("beside").after("root"),
        handler("y").after("x"),
    ];
    assert_eq!(refusal(tasks), r#"workflow "w" has a cycle: "x" → "y" → "x""#);
}

#[test]
fn the_longest_cycle_is_found_without_recursion() {
    let mut tasks = chain(TASKS_MAX);
    tasks[0].parents.push(format!("t{}", TASKS_MAX - 1));
    let error = draft(tasks).build().expect_err("the chain is closed");
    let DefinitionError::Cycle { path, .. } = error else { panic!("no cycle but {error}") };
    assert_eq!(path.len(), TASKS_MAX + 1);
    assert_eq!((path[0].as_str(), path[1].as_str()), ("t0", "t1"));
    assert_eq!(path.last(), path.first());
}

#[test]
fn other_policies_are_the_same_shape() {
    let mut other = handler("b").after("a");
    other.retry = RetryPolicy::none();
    other.timeout = Some(Duration::from_secs(1));
    other.queue = "slow".into();
    other.priority = Priority::MAX;
    let nap = |seconds| TaskDraft::new("nap", TaskKind::Sleep(Duration::from_secs(seconds)));
    let here = build([handler("a"), handler("b").after("a"), nap(1)]);
    let there = build([handler("a"), other, nap(2)]);
    assert_eq!(here.shape_difference(&there), None);
    assert_eq!(there.shape_difference(&here), None);
    assert_ne!(here, there);
}

#[test]
fn other_tasks_edges_kinds_and_triggers_are_another_shape() {
    let sleep = |seconds| TaskDraft::new("b", TaskKind::Sleep(Duration::from_secs(seconds)));
    let mut any_failed = handler("b").after("a");
    any_failed.trigger = Trigger::AnyFailed;
    let here = || vec![handler("a"), handler("b").after("a")];
    let cases = [
        (here(), vec![handler("a"), handler("c").after("a")], r#"task "b" is "c" there"#),
        (here(), vec![handler("a"), handler("b")], r#"task "b" has other parents there"#),
        (here(), vec![handler("a"), any_failed], r#"task "b" is of another kind there"#),
        (here(), vec![handler("a"), sleep(1).after("a")], r#"task "b" is of another kind there"#),
        (here(), vec![handler("a")], "it has 2 tasks here and 1 there"),
        (vec![handler("a")], here(), "it has 1 tasks here and 2 there"),
    ];
    for (here, there, sentence) in cases {
        let difference = build(here).shape_difference(&build(there));
        assert_eq!(difference.as_deref(), Some(sentence));
    }
}

/// Whether following edges from any task leads back to it, tried out one by one.
fn has_cycle(count: usize, edges: &BTreeSet<(usize, usize)>) -> bool {
    fn reaches(
        from: usize,
        to: usize,
        edges: &BTreeSet<(usize, usize)>,
        seen: &mut [bool],
    ) -> bool {
        edges.iter().filter(|(parent, _)| *parent == from).any(|(_, child)| {
            *child == to
                || (!std::mem::replace(&mut seen[*child], true) && reaches(*child, to, edges, seen))
        })
    }
    (0..count).any(|task| reaches(task, task, edges, &mut vec![false; count]))
}

proptest! {
    #[test]
    fn a_graph_is_refused_if_and_only_if_it_has_a_cycle_and_the_path_is_one(
        count in 2..14usize,
        pairs in prop::collection::vec((0..14usize, 0..14usize), 0..24),
    ) {
        let edges: BTreeSet<(usize, usize)> = pairs
            .into_iter()
            .map(|(parent, child)| (parent % count, child % count))
            .filter(|(parent, child)| parent != child)
            .collect();
        let mut tasks: Vec<_> = (0..count).map(|i| handler(&format!("t{i}"))).collect();
        for (parent, child) in &edges {
            tasks[*child].parents.push(format!("t{parent}"));
        }
        match draft(tasks).build() {
            Ok(definition) => {
                prop_assert!(!has_cycle(count, &edges));
                prop_assert_eq!(definition.tasks().len(), count);
            }
            Err(DefinitionError::Cycle { path, .. }) => {
                let index: HashMap<_, _> = (0..count).map(|i| (format!("t{i}"), i)).collect();
                let path: Vec<usize> = path.iter().map(|name| index[name]).collect();
                prop_assert!(path.len() >= 3, "{path:?}");
                prop_assert_eq!(path.first(), path.last());
                for step in path.windows(2) {
                    prop_assert!(edges.contains(&(step[0], step[1])), "{path:?} {edges:?}");
                }
                let members: BTreeSet<_> = path.iter().copied().collect();
                prop_assert_eq!(members.len(), path.len() - 1, "a task is passed twice");
                prop_assert_eq!(members.first(), path.first());
            }
            Err(other) => prop_assert!(false, "refused for {}", other),
        }
    }
}

#[test]
fn a_lone_on_failure_task_is_refused_because_nothing_could_fail() {
    let sorry = TaskDraft::new("sorry", TaskKind::OnFailure);
    let error = DefinitionDraft::new("w").task(sorry).build().unwrap_err();
    assert_eq!(error.to_string(), r#"workflow "w" has no task besides its on-failure task"#);
}
