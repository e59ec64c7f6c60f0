//! The workflows of a story: few, small, and with every kind of task and trigger.
//!
//! A workflow's shape is fixed by its name and version. Its policies (attempts,
//! queues, priorities, timeouts, the length of sleeps) are drawn anew for every
//! registration.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::definition::TaskDraft;
use windlass_core::lane::LIMITS_MAX;
use windlass_core::{
    Bound, Definition, DefinitionDraft, Limit, Priority, QueueName, RetryPolicy, TaskKind, Trigger,
    Version, WhenFull, WorkflowName,
};

use super::super::dice::Dice;
use super::super::known::undo_name;
use crate::store::HandlerKey;

/// The queues that tasks wait in.
pub(super) const QUEUES: [&str; 3] = ["default", "mail", "slow"];

/// The workflows, with their versions.
pub(super) const WORKFLOWS: [(&str, u32); 8] = [
    ("single", 1),
    ("chain", 1),
    ("diamond", 1),
    ("fan", 1),
    ("triggers", 1),
    ("naps", 1),
    ("sorry", 1),
    ("sorry", 2),
];

fn shape(workflow: &str, version: u32) -> Vec<TaskDraft> {
    match (workflow, version) {
        ("chain", _) => vec![handler("a"), handler("b").after("a"), handler("c").after("b")],
        ("diamond", _) => vec![
            handler("a"),
            handler("b").after("a"),
            handler("c").after("a"),
            handler("join").after("b").after("c"),
        ],
        ("fan", _) => {
            let leaves = ["b", "c", "d", "e", "f"];
            let mut tasks = vec![handler("a")];
            tasks.extend(leaves.map(|leaf| handler(leaf).after("a")));
            let join = on(Trigger::NoneFailed, handler("join"));
            tasks.push(leaves.into_iter().fold(join, TaskDraft::after));
            tasks
        }
        ("triggers", _) => vec![
            handler("a"),
            handler("b"),
            handler("all").after("a").after("b"),
            on(Trigger::AllFinished, handler("ended").after("a").after("b")),
            on(Trigger::AnyFailed, handler("failed").after("a").after("b")),
            on(Trigger::NoneFailed, handler("unfailed").after("all").after("failed")),
            on(Trigger::AllFinished, sleep("nap").after("unfailed").after("ended")),
        ],
        ("naps", _) => vec![
            sleep("nap"),
            handler("a").after("nap"),
            sleep("rest").after("a"),
            on(Trigger::AnyFailed, sleep("mourn").after("a")),
            on(Trigger::AllFinished, handler("join").after("rest").after("mourn")),
        ],
        ("sorry", 1) => vec![
            handler("a"),
            handler("b").after("a"),
            TaskDraft::new("sorry", TaskKind::OnFailure),
        ],
        ("sorry", _) => vec![
            TaskDraft::new("sorry", TaskKind::OnFailure),
            handler("a"),
            handler("b"),
            on(Trigger::NoneFailed, sleep("nap").after("a").after("b")),
        ],
        (_, _) => vec![handler("a")],
    }
}

fn handler(name: &str) -> TaskDraft {
    TaskDraft::new(name, TaskKind::Handler)
}

fn sleep(name: &str) -> TaskDraft {
    TaskDraft::new(name, TaskKind::Sleep(Duration::ZERO))
}

fn on(trigger: Trigger, task: TaskDraft) -> TaskDraft {
    TaskDraft { trigger, ..task }
}

/// A workflow with policies as they come.
pub(super) fn definition(dice: &mut Dice, (workflow, version): (&str, u32)) -> Arc<Definition> {
    let tasks = shape(workflow, version).into_iter();
    let tasks = tasks.map(|task| with_policies(dice, task)).collect();
    let timeout = (dice.has_deadlines() && dice.chance(8)).then(|| dice.micros(1..120_000_000));
    build((workflow, version), timeout, tasks)
}

/// A workflow that is not what is registered under its name.
pub(super) fn other_shape(dice: &mut Dice, (workflow, version): (&str, u32)) -> Arc<Definition> {
    let mut tasks = shape(workflow, version);
    // Nothing depends on the last task, so anything may happen to it.
    let last = tasks.pop().expect("every shape has tasks");
    let has_parents = !last.parents.is_empty();
    let other = match dice.count(0..4) {
        0 => TaskDraft { name: "other".to_owned(), ..last },
        1 if has_parents => TaskDraft { parents: Vec::new(), trigger: Trigger::default(), ..last },
        2 if has_parents && last.trigger != Trigger::AllFinished => on(Trigger::AllFinished, last),
        3 if last.kind == TaskKind::Handler => {
            TaskDraft { kind: TaskKind::Sleep(Duration::ZERO), ..last }
        }
        _ => {
            tasks.push(handler("more"));
            last
        }
    };
    tasks.push(other);
    build((workflow, version), None, tasks)
}

fn build(
    (workflow, version): (&str, u32),
    timeout: Option<Duration>,
    tasks: Vec<TaskDraft>,
) -> Arc<Definition> {
    let version = Version::new(version).expect("versions begin at 1");
    let draft = DefinitionDraft { name: workflow.to_owned(), version, timeout, tasks };
    Arc::new(draft.build().unwrap_or_else(|error| panic!("a shape is wrong: {error}")))
}

fn with_policies(dice: &mut Dice, task: TaskDraft) -> TaskDraft {
    let kind = match task.kind {
        TaskKind::Sleep(_) => {
            TaskKind::Sleep(dice.pick(&[0, 1, 1_000_000, 20_000_000].map(Duration::from_micros)))
        }
        TaskKind::Handler | TaskKind::OnFailure => task.kind,
    };
    let retry = RetryPolicy::fixed(dice.micros(..10_000_000));
    TaskDraft {
        kind,
        retry: retry.attempts(dice.pick(&[1, 2, 2, 3])),
        timeout: dice.chance(20).then(|| dice.micros(1..60_000_000)),
        claim_timeout: match kind {
            TaskKind::Handler if dice.has_deadlines() && dice.chance(8) => {
                Some(dice.micros(1..60_000_000))
            }
            TaskKind::Handler | TaskKind::OnFailure | TaskKind::Sleep(_) => None,
        },
        queue: dice.pick(&["default", "default", "default", "mail", "slow"]).to_owned(),
        priority: any_priority(dice),
        limits: match kind {
            TaskKind::Handler | TaskKind::OnFailure if dice.chance(10) => any_limits(dice),
            TaskKind::Handler | TaskKind::OnFailure | TaskKind::Sleep(_) => Vec::new(),
        },
        ..task
    }
}

/// Few slots, which tasks of all workflows share.
fn any_limits(dice: &mut Dice) -> Vec<Limit> {
    let pools = [
        Limit::of(1).named("narrow").across_tenants(),
        Limit::of(3).named("wide").across_tenants(),
        Limit::of(2).named("own"),
        Limit::per("key", 1).named("keyed"),
    ];
    let mut limits = dice.some(&pools, 40);
    let minute = Duration::from_secs(60);
    let timed = [
        Limit::rate(20, minute).named("rate").across_tenants(),
        Limit::rate(3, minute).named("burst").burst(3),
        Limit::debounce(minute / 20).named("quiet").by("key").at_most(minute / 4),
        Limit::breaker(60).named("breaker").calls(3).window(minute).pause(minute / 6),
        Limit::of(2).named("newest").when_full(WhenFull::CancelOldest),
        Limit::per("key", 1).named("halting").halt(),
    ];
    limits.extend(dice.some(&timed, 12));
    limits.truncate(LIMITS_MAX);
    if let Some(keyed) = limits.iter_mut().find(|limit| limit.field.is_some()) {
        keyed.is_owned = dice.chance(25);
    }
    for limit in &mut limits {
        if let Bound::Slots(slots) = &mut limit.bound {
            *slots += u32::from(dice.chance(20));
        }
        let is_plain = limit.when_full == WhenFull::Wait;
        if dice.chance(15) && is_plain && !matches!(limit.bound, Bound::Debounce(_)) {
            limit.when_full = WhenFull::Skip;
        }
    }
    limits
}

/// Mostly none, so that tenants meet in the same routes.
pub(super) fn any_priority(dice: &mut Dice) -> Priority {
    let number = match dice.count(0..20) {
        0..15 => 0,
        15..17 => 1,
        17..19 => -1,
        _ => dice.pick(&[-100, -60, 60, 100]),
    };
    Priority::new(number).expect("these are within the limits")
}

pub(super) fn workflow_name(name: &str) -> WorkflowName {
    WorkflowName::new(name).expect("these are names")
}

/// The name of a workflow, perhaps of one that nobody ever registers.
pub(super) fn any_name(dice: &mut Dice) -> WorkflowName {
    let known = WORKFLOWS[dice.count(0..WORKFLOWS.len())].0;
    workflow_name(if dice.chance(5) { "unheard-of" } else { known })
}

/// Handlers for all workflows, or for some.
pub(super) fn any_handlers(dice: &mut Dice) -> Arc<[HandlerKey]> {
    let key = |(name, version): (&str, u32)| HandlerKey {
        workflow: workflow_name(name),
        version: Version::new(version).expect("versions begin at 1"),
    };
    let all = WORKFLOWS.map(key).into_iter();
    let undo = |of: HandlerKey| {
        let workflow = undo_name(&of.workflow).expect("these are names");
        [of.clone(), HandlerKey { workflow, ..of }]
    };
    let all: Vec<HandlerKey> = all.flat_map(undo).collect();
    let percent = dice.pick(&[100, 100, 100, 60, 30, 0]);
    dice.some(&all, percent).into()
}

/// All queues, or some, in any order.
pub(super) fn any_queues(dice: &mut Dice) -> Arc<[QueueName]> {
    let all = QUEUES.map(|name| QueueName::new(name).expect("these are names"));
    let percent = dice.pick(&[100, 100, 70, 40]);
    dice.some(&all, percent).into()
}
