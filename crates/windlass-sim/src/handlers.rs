//! The workflows of a scenario with handlers that do what the seed says.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::Held;
use windlass::{Ctx, Error, Fence, Function, RunId, Task, TaskError, Workflow};
use windlass_core::{TaskId, TaskIndex};

use crate::dice::{Dice, mix, mix_large};
use crate::functions::{Leaves, Player};
use crate::input::Input;
use crate::ledger::HandlerEnd;
use crate::panics::EXPECTED_PANIC;
use crate::scenario::{HANDLER_MAX, LimitPlan, TaskPlan, WorkKind, WorkflowPlan};
use crate::world::World;

/// What an attempt does, and when.
#[derive(Clone, Copy, Debug)]
enum Act {
    Return(Duration),
    Fail(Duration),
    FailForGood(Duration),
    Panic(Duration),
    AwaitCancel,
}

/// A handle of a task, whatever it gives.
enum Parent {
    Handler(Task<u64>),
    Sleep(Task<()>),
}

/// Every version of every workflow, in the order of the scenario.
pub(crate) fn build(world: &Arc<World>) -> Result<Vec<Workflow<Input>>, Error> {
    let plans = world.scenario.workflows.iter().enumerate();
    let leaf = |(place, plan)| Ok((place, build_leaf(world, plan)?));
    let leaves: Result<Vec<_>, Error> =
        plans.clone().filter(|(_, plan)| plan.is_leaf).map(leaf).collect();
    let leaves: Leaves = Arc::new(leaves?);
    let build = |(place, plan): (usize, &WorkflowPlan)| match leaves
        .iter()
        .find(|(leaf, _)| *leaf == place)
    {
        Some((_, leaf)) => Ok(leaf.workflow().clone()),
        None => build_one(world, plan, &leaves),
    };
    plans.map(build).collect()
}

/// A function that others start.
fn build_leaf(world: &Arc<World>, plan: &WorkflowPlan) -> Result<Function<Input, u64>, Error> {
    let task = plan.tasks[0].clone();
    let mut leaf = Function::<Input, u64>::builder(&plan.name).version(plan.version);
    leaf = leaf.retry(task.retry.clone()).queue(task.queue);
    for limit in &task.limits {
        leaf = leaf.limit(limit.limit());
    }
    if let Some(timeout) = task.timeout {
        leaf = leaf.timeout(timeout);
    }
    if let Some(timeout) = task.claim_timeout {
        leaf = leaf.claim_timeout(timeout);
    }
    if let Some(timeout) = plan.run_timeout {
        leaf = leaf.run_timeout(timeout);
    }
    let actor = Actor::new(world, TaskIndex(0), task, Leaves::default());
    leaf.run(move |ctx| actor.clone().perform(ctx))
}

fn build_one(
    world: &Arc<World>,
    plan: &WorkflowPlan,
    leaves: &Leaves,
) -> Result<Workflow<Input>, Error> {
    let mut workflow = Workflow::<Input>::builder(&plan.name).version(plan.version);
    if let Some(timeout) = plan.run_timeout {
        workflow = workflow.run_timeout(timeout);
    }
    let mut tasks: Vec<Parent> = Vec::new();
    for (place, task) in plan.tasks.iter().enumerate() {
        let name = format!("t{place}");
        let index = TaskIndex::from_usize(place);
        let actor = Actor::new(world, index, task.clone(), Arc::clone(leaves));
        let added = match task.kind {
            WorkKind::Sleep(time) => {
                let mut sleep = workflow.sleep(name, time).trigger(task.trigger);
                for parent in &task.parents {
                    sleep = match &tasks[*parent] {
                        Parent::Handler(parent) => sleep.after(parent),
                        Parent::Sleep(parent) => sleep.after(parent),
                    };
                }
                Parent::Sleep(sleep.add())
            }
            WorkKind::OnFailure => {
                let on_failure = workflow.on_failure(name).retry(task.retry.clone());
                let on_failure = on_failure.queue(task.queue);
                Parent::Handler(on_failure.run(move |ctx, _| actor.clone().perform(ctx)))
            }
            WorkKind::Handler => Parent::Handler(handler(&mut workflow, &tasks, task, actor)),
        };
        tasks.push(added);
    }
    workflow.build()
}

fn handler(
    workflow: &mut windlass::WorkflowBuilder<Input>,
    earlier: &[Parent],
    plan: &TaskPlan,
    actor: Actor,
) -> Task<u64> {
    let name = format!("t{}", actor.index.0);
    let mut task = workflow.task(name).trigger(plan.trigger).retry(plan.retry.clone());
    task = task.queue(plan.queue).priority(plan.priority);
    for limit in &plan.limits {
        task = task.limit(limit.limit());
    }
    if let Some(timeout) = plan.timeout {
        task = task.timeout(timeout);
    }
    if let Some(timeout) = plan.claim_timeout {
        task = task.claim_timeout(timeout);
    }
    for parent in &plan.parents {
        task = match &earlier[*parent] {
            Parent::Handler(parent) => task.after(parent),
            Parent::Sleep(parent) => task.after(parent),
        };
    }
    if plan.is_conditional {
        let (seed, index) = (actor.world.scenario.seed, actor.index);
        task = task.when(move |ctx| condition(seed, TaskId { run: ctx.run_id(), index }));
    }
    match plan.parents.first().map(|first| (&earlier[*first], *first)) {
        Some((Parent::Handler(parent), place)) if plan.is_reading => {
            task.reads(parent).run(move |ctx, value| {
                actor.check_read(ctx.run_id(), place, value);
                actor.clone().perform(ctx)
            })
        }
        Some(_) | None => task.run(move |ctx| actor.clone().perform(ctx)),
    }
}

/// Whether a conditional task runs: the same whenever it is asked.
pub(crate) fn condition(seed: u64, task: TaskId) -> bool {
    let number = mix_large(mix(seed, 1), task.run.as_uuid().as_u128());
    Dice::from_number(mix(number, u64::from(task.index.0))).chance(0.6)
}

/// What plays a task.
#[derive(Clone)]
struct Actor {
    world: Arc<World>,
    index: TaskIndex,
    plan: Arc<TaskPlan>,
    leaves: Leaves,
}

impl Actor {
    fn new(world: &Arc<World>, index: TaskIndex, plan: TaskPlan, leaves: Leaves) -> Self {
        Actor { world: Arc::clone(world), index, plan: Arc::new(plan), leaves }
    }

    /// Plays a durable function.
    async fn play(&self, ctx: &Ctx<Input>, task: TaskId) -> Result<u64, TaskError> {
        let leaves = Arc::clone(&self.leaves);
        let player = Player::new(Arc::clone(&self.world), task, ctx, leaves);
        let played = player.perform(ctx, &self.plan).await;
        if ctx.is_undoing() {
            return played;
        }
        self.world.trace(|| format!("task {task} fence {}: {played:?}", ctx.fence()));
        let end = played.as_ref().map_or(HandlerEnd::Failed, |sum| HandlerEnd::Returned(*sum));
        self.world.handlers.lock().end(task, ctx.fence(), end);
        played
    }

    async fn perform(self, ctx: Ctx<Input>) -> Result<u64, TaskError> {
        let task = TaskId { run: ctx.run_id(), index: self.index };
        if ctx.is_undoing() {
            return self.play(&ctx, task).await;
        }
        let (fence, attempt) = (ctx.fence(), ctx.attempt());
        let now = self.world.now();
        self.world.handlers.lock().begin(task, fence, attempt, now);
        let _open = self.world.open_call(task, fence);
        let name = format!("{}/{}", ctx.workflow(), ctx.task());
        let lane = |limit: &LimitPlan| {
            let slots = limit.slots()?;
            Some((limit.lane(&name, ctx.tenant().as_str(), *ctx.input()), slots))
        };
        let lanes = self.plan.limits.iter().filter_map(lane).collect();
        let _slots = self.world.enter_lanes(Held { task, fence }, lanes).await;
        if !self.plan.program.is_empty() {
            return self.play(&ctx, task).await;
        }
        let act = self.act(task, fence);
        self.world.trace(|| format!("task {task} fence {fence} attempt {attempt}: {act:?}"));
        self.check_checkpoint(&ctx, task);
        let end = |end| self.world.handlers.lock().end(task, fence, end);
        match act {
            Act::Return(after) => {
                let until = tokio::time::Instant::now() + after;
                if after > Duration::from_secs(1) {
                    ctx.progress(&fence.0)?;
                    // Faults may keep it away; what comes of it is checked by the next attempt.
                    let _ = tokio::time::timeout(after, ctx.checkpoint(&output(task, fence))).await;
                }
                tokio::time::sleep_until(until).await;
                let output = output(task, fence);
                end(HandlerEnd::Returned(output));
                Ok(output)
            }
            Act::Fail(after) => {
                tokio::time::sleep(after).await;
                end(HandlerEnd::Failed);
                Err(TaskError::new("simulated"))
            }
            Act::FailForGood(after) => {
                tokio::time::sleep(after).await;
                end(HandlerEnd::Failed);
                Err(TaskError::new("simulated").permanent())
            }
            Act::Panic(after) => {
                tokio::time::sleep(after).await;
                end(HandlerEnd::Failed);
                panic!("{EXPECTED_PANIC}");
            }
            Act::AwaitCancel => {
                ctx.cancelled().await;
                end(HandlerEnd::Failed);
                Err(TaskError::new("simulated: cancelled"))
            }
        }
    }

    /// What the attempt with this fence does, by the seed alone.
    fn act(&self, task: TaskId, fence: Fence) -> Act {
        let seed = self.world.scenario.seed;
        let number = mix_large(mix(seed, 2), task.run.as_uuid().as_u128());
        let number = mix(mix(number, u64::from(task.index.0)), fence.0);
        let mut dice = Dice::from_number(number);
        let temper = self.world.scenario.temper;
        let mut after = dice.millis(0..=400);
        if dice.chance(temper.is_slow) {
            after = dice.up_to(HANDLER_MAX);
        }
        if let Some(timeout) = self.plan.timeout {
            if dice.chance(temper.overstays) {
                after = (timeout + dice.millis(1..=5_000)).min(HANDLER_MAX);
            } else if dice.chance(temper.awaits_cancel) {
                return Act::AwaitCancel;
            }
        }
        if dice.chance(temper.fails) {
            Act::Fail(after)
        } else if dice.chance(temper.fails_for_good) {
            Act::FailForGood(after)
        } else if dice.chance(temper.panics) {
            Act::Panic(after)
        } else {
            Act::Return(after)
        }
    }

    /// An attempt is handed what an earlier one of the same task kept, and nothing else.
    fn check_checkpoint(&self, ctx: &Ctx<Input>, task: TaskId) {
        let is_of_earlier =
            |value: u64| (1..ctx.fence().0).any(|fence| output(task, Fence(fence)) == value);
        match ctx.last_checkpoint::<u64>() {
            Ok(None) => {}
            Ok(Some(value)) if is_of_earlier(value) => {}
            other => {
                let text = format!("task {task} fence {} is handed {other:?}", ctx.fence());
                self.world.violate("G3 checkpoints are what earlier attempts kept", text);
            }
        }
    }

    /// A child is handed what its parent's handler returned.
    fn check_read(&self, run: RunId, place: usize, value: u64) {
        let parent = TaskId { run, index: TaskIndex::from_usize(place) };
        if !self.world.handlers.lock().has_returned(parent, value) {
            let text = format!("task {} of run {run} reads {value} of t{place}", self.index.0);
            self.world.violate("G3 outputs are what handlers returned", text);
        }
    }
}

/// The output of a task under a fence: no two are the same.
fn output(task: TaskId, fence: Fence) -> u64 {
    let number = mix_large(u64::from(task.index.0), task.run.as_uuid().as_u128());
    mix(number, fence.0)
}
