//! Plays the programs of durable functions, and sees that what a function learns is what it
//! must learn, in the order in which earlier attempts learned it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass::{Ctx, Fence, Function, RetryPolicy, RunId, TaskError};
use windlass_core::TaskId;

use crate::dice::{Dice, mix, mix_large};
use crate::input::Input;
use crate::ledger::HandlerEnd;
use crate::panics::EXPECTED_PANIC;
use crate::scenario::{
    DEFERRED, KEY_SIGNAL, Part, RESULT_BITS, SignalPlan, TaskPlan, child_input, key_answer, label,
    step_value, undoable_name, value,
};
use crate::world::World;

const VALUES: &str = "G14 calls give what they must";

/// How often a function errs between two of its parts, as a share of how often handlers do.
const SLIPS: f64 = 0.15;

type Played<'a> = Pin<Box<dyn Future<Output = Result<u64, TaskError>> + Send + 'a>>;

/// The functions that others start, by their place in the scenario.
pub(crate) type Leaves = Arc<Vec<(usize, Function<Input, u64>)>>;

/// How often what undoes a step is tried.
fn undo_retry() -> RetryPolicy {
    RetryPolicy::fixed(Duration::from_millis(200)).attempts(8)
}

/// One attempt of a durable function.
pub(crate) struct Player {
    world: Arc<World>,
    task: TaskId,
    fence: Fence,
    leaves: Leaves,
    /// Whether it is only to say how steps are undone.
    is_undoing: bool,
    /// How many results this attempt has learned of.
    learned: AtomicUsize,
}

impl Player {
    /// The attempt with this fence.
    pub(crate) fn new(world: Arc<World>, task: TaskId, ctx: &Ctx<Input>, leaves: Leaves) -> Self {
        let (fence, is_undoing) = (ctx.fence(), ctx.is_undoing());
        Player { world, task, fence, leaves, is_undoing, learned: AtomicUsize::new(0) }
    }

    /// Plays a program from its beginning, and then perhaps afresh.
    pub(crate) async fn perform(
        &self,
        ctx: &Ctx<Input>,
        plan: &TaskPlan,
    ) -> Result<u64, TaskError> {
        self.world.check_input(self.task, self.fence, *ctx.input());
        let sum = self.play(ctx, &plan.program, 0).await?;
        match ctx.input().next(plan.rounds) {
            Some(next) => Err(ctx.continue_with(&next)),
            None => Ok(sum),
        }
    }

    fn play<'a>(&'a self, ctx: &'a Ctx<Input>, program: &'a [Part], path: u64) -> Played<'a> {
        Box::pin(async move {
            let mut sum = 0;
            for (place, part) in program.iter().enumerate() {
                let label = label(path, place);
                // Beside others that go on it would be another function than before.
                if path == 0 {
                    self.slip(label)?;
                }
                sum = mix(sum, self.part(ctx, part, label).await?);
            }
            Ok(sum)
        })
    }

    fn part<'a>(&'a self, ctx: &'a Ctx<Input>, part: &'a Part, label: u64) -> Played<'a> {
        Box::pin(async move {
            match part {
                Part::Step(retry) => {
                    let step = ctx.step("step", || self.work(ctx.input().0, label));
                    self.learn_step(ctx, label, step.retry(retry.clone()).await)
                }
                Part::Undoable(retry) => {
                    let step = ctx.step(undoable_name(label), || self.work(ctx.input().0, label));
                    let (world, task) = (Arc::clone(&self.world), self.task);
                    let due = step_value(ctx.input().0, label);
                    let undo = move |given: u64| async move {
                        if given & RESULT_BITS != due {
                            let text = format!("what undoes a step of task {task} got {given}");
                            world.violate(VALUES, text);
                        }
                        world.undo(task, label).await
                    };
                    let step = step.compensate(undo).undo_retry(undo_retry()).retry(retry.clone());
                    self.learn_step(ctx, label, step.await)
                }
                Part::Defer => {
                    let (world, task) = (Arc::clone(&self.world), self.task);
                    let undo = move || async move { world.undo(task, label).await };
                    ctx.defer(undoable_name(label), undo).undo_retry(undo_retry()).await?;
                    self.learn(label, DEFERRED);
                    Ok(DEFERRED)
                }
                Part::Loop(count) => {
                    let mut sum = 0;
                    for turn in 0..*count {
                        let label = mix(label, turn as u64);
                        let step = ctx.step("turn", || self.work(ctx.input().0, label)).await;
                        sum = mix(sum, self.learn_step(ctx, label, step)?);
                    }
                    Ok(sum)
                }
                Part::Sleep(time) => {
                    self.begin(label);
                    ctx.sleep(*time).await?;
                    self.learn_wait(label, *time);
                    self.learn(label, 1);
                    Ok(1)
                }
                Part::Signal { name, timeout } => {
                    self.signal(ctx, (name, None), *timeout, label).await
                }
                Part::KeySignal { key, timeout } => {
                    self.signal(ctx, (KEY_SIGNAL, Some(key)), *timeout, label).await
                }
                Part::Ask(name) => {
                    let ask = async || {
                        let mut dice = self.dice(9, label);
                        let after = dice.millis(0..=8);
                        let plan = SignalPlan {
                            pause: after,
                            name,
                            value: dice.number() % 1_000,
                            id: dice.large_number(),
                        };
                        self.world.call_back(self.task.run, plan);
                        self.work(ctx.input().0, label).await
                    };
                    let asked = ctx.step("ask", ask).await;
                    let asked = self.learn_step(ctx, label, asked)?;
                    Ok(mix(asked, self.signal(ctx, (name, None), None, mix(label, 0)).await?))
                }
                Part::AskKey(key) => {
                    let ask = async || {
                        let mut dice = self.dice(10, label);
                        let tenants = &self.world.scenario.tenants;
                        let tenant =
                            tenants.iter().position(|one| one.name == ctx.tenant().as_str());
                        if let Some(tenant) = tenant {
                            self.world.call_back_to_key(key_answer(tenant, key, &mut dice));
                        }
                        self.work(ctx.input().0, label).await
                    };
                    let asked = ctx.step("ask", ask).await;
                    let asked = self.learn_step(ctx, label, asked)?;
                    let to = (KEY_SIGNAL, Some(*key));
                    Ok(mix(asked, self.signal(ctx, to, None, mix(label, 0)).await?))
                }
                Part::Time => {
                    let time = ctx.now().await?.as_micros() as u64;
                    self.learn(label, time);
                    Ok(time)
                }
                Part::Run(leaf) => {
                    let input = Input(child_input(ctx.input().0, label, 0));
                    let given = ctx.run(self.leaf(*leaf)?, input).await;
                    self.check_child(*leaf, input, given.as_ref().ok());
                    self.learn_result(label, given)
                }
                Part::Map { leaf, count, most } => {
                    self.map(ctx, *leaf, (*count, *most), label).await
                }
                Part::Start(leaf) => {
                    let input = Input(child_input(ctx.input().0, label, 0));
                    let run = ctx.start(self.leaf(*leaf)?, input).await;
                    let number = |run: RunId| mix_large(0, run.as_uuid().as_u128());
                    self.learn_result(label, run.map(number))
                }
                Part::Join([one, two, three]) => {
                    let (one, two, three) = tokio::join!(
                        self.play(ctx, one, mix(label, 0)),
                        self.play(ctx, two, mix(label, 1)),
                        self.play(ctx, three, mix(label, 2)),
                    );
                    Ok(mix(mix(mix(0, one?), two?), three?))
                }
                Part::Race(one, other) => tokio::select! {
                    biased;
                    one = self.part(ctx, one, mix(label, 0)) => one,
                    other = self.part(ctx, other, mix(label, 1)) => other,
                },
            }
        })
    }

    async fn signal(
        &self,
        ctx: &Ctx<Input>,
        (name, key): (&str, Option<&str>),
        timeout: Option<Duration>,
        label: u64,
    ) -> Result<u64, TaskError> {
        let mut signal = ctx.signal::<u64>(name);
        if let Some(key) = key {
            signal = signal.key(key);
        }
        let Some(timeout) = timeout else {
            let value = signal.await?;
            self.learn(label, value);
            return Ok(value);
        };
        self.begin(label);
        let value = signal.timeout(timeout).await?;
        if value.is_none() {
            self.learn_wait(label, timeout);
        }
        self.learn(label, value.unwrap_or(0));
        Ok(value.unwrap_or(0))
    }

    async fn map(
        &self,
        ctx: &Ctx<Input>,
        leaf: usize,
        (count, most): (usize, usize),
        label: u64,
    ) -> Result<u64, TaskError> {
        let input = |place| Input(child_input(ctx.input().0, label, place));
        let results = ctx.map(self.leaf(leaf)?, (0..count).map(input)).concurrency(most).await?;
        if results.len() != count {
            let text =
                format!("task {} asked for {count} runs, {} ended", self.task, results.len());
            self.world.violate("G14 as many children as asked for", text);
        }
        let mut sum = 0;
        for (place, result) in results.into_iter().enumerate() {
            self.check_child(leaf, input(place), result.as_ref().ok());
            sum = mix(sum, result.unwrap_or(3));
        }
        self.learn(label, sum);
        Ok(sum)
    }

    fn leaf(&self, place: usize) -> Result<&Function<Input, u64>, TaskError> {
        let found = self.leaves.iter().find(|(known, _)| *known == place);
        found.map(|(_, leaf)| leaf).ok_or_else(|| TaskError::new("no such function").permanent())
    }

    fn dice(&self, salt: u64, label: u64) -> Dice {
        let seed = self.world.scenario.seed;
        let number = mix_large(mix(seed, salt), self.task.run.as_uuid().as_u128());
        let number = mix(number, u64::from(self.task.index.0));
        Dice::from_number(mix(mix(number, label), self.fence.0))
    }

    /// The work of a step: it takes a while, and may fail.
    async fn work(&self, input: u64, label: u64) -> Result<u64, TaskError> {
        self.world.note_work(self.task, self.fence, step_value(input, label));
        let mut dice = self.dice(5, label);
        let temper = self.world.scenario.temper;
        let longest = dice.pick(&[0, 20, 300, 3_000]);
        let mut time = dice.millis(0..=longest);
        if dice.chance(temper.is_slow) {
            time = dice.millis(500..=7_000);
        }
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        if dice.chance(temper.fails) {
            return Err(TaskError::new(format!("simulated by fence {}", self.fence)));
        }
        if dice.chance(temper.fails_for_good / 2.0) {
            return Err(TaskError::new("simulated for good").permanent());
        }
        Ok(step_value(input, label) | self.fence.0 & !RESULT_BITS)
    }

    /// The function itself errs, between two of its parts.
    fn slip(&self, label: u64) -> Result<(), TaskError> {
        if self.is_undoing {
            return Ok(());
        }
        let mut dice = self.dice(6, label);
        let temper = self.world.scenario.temper;
        if dice.chance(temper.fails * SLIPS) {
            return Err(TaskError::new("simulated slip"));
        }
        if dice.chance(temper.panics * SLIPS) {
            self.world.handlers.lock().end(self.task, self.fence, HandlerEnd::Failed);
            panic!("{EXPECTED_PANIC}");
        }
        Ok(())
    }

    /// A call that takes time begins, if no earlier attempt began it.
    fn begin(&self, label: u64) {
        let now = self.world.now();
        self.world.with_function(self.task, self.fence, |notes| {
            notes.begun.entry(label).or_insert(now);
        });
    }

    /// A call that took time is over: not before it may be.
    fn learn_wait(&self, label: u64, least: Duration) {
        let now = self.world.now();
        let begun = self
            .world
            .with_function(self.task, self.fence, |notes| notes.begun.get(&label).copied());
        if let Some(begun) = begun.flatten()
            && now.since(begun) < least
        {
            let text = format!("task {} waited {least:?} from {begun} until {now}", self.task);
            self.world.violate("G11 timers never early", text);
        }
    }

    fn learn_step(
        &self,
        ctx: &Ctx<Input>,
        label: u64,
        step: Result<u64, TaskError>,
    ) -> Result<u64, TaskError> {
        if let Ok(given) = &step
            && given & RESULT_BITS != step_value(ctx.input().0, label)
        {
            self.world.violate(VALUES, format!("a step of task {} gave {given}", self.task));
        }
        self.learn_result(label, step).map(|given| given & RESULT_BITS)
    }

    /// What a function learned, unless it was an error that it goes on from.
    fn learn_result(&self, label: u64, given: Result<u64, TaskError>) -> Result<u64, TaskError> {
        match given {
            Ok(given) => {
                self.learn(label, given);
                Ok(given)
            }
            Err(error) => {
                self.learn(label, error.to_string().bytes().fold(7, |sum, b| mix(sum, b.into())));
                // A function that others start passes every error on: they know what it gives.
                let goes_on = mix(label, 8).is_multiple_of(2) && !self.is_leaf();
                if goes_on { Ok(2) } else { Err(error) }
            }
        }
    }

    fn is_leaf(&self) -> bool {
        self.leaves.is_empty()
    }

    /// The function learned of a result: the same as any attempt of the round before.
    fn learn(&self, label: u64, value: u64) {
        let place = self.learned.fetch_add(1, Ordering::Relaxed);
        let known = self.world.with_function(self.task, self.fence, |notes| {
            match notes.learned.get(place) {
                Some(known) => Some(*known),
                None => {
                    notes.learned.push((label, value));
                    None
                }
            }
        });
        if let Some(known) = known.flatten()
            && known != (label, value)
        {
            let (task, fence) = (self.task, self.fence);
            let text = format!(
                "task {task} fence {fence} learns {label:x}: {value} as result {place}, an attempt \
                 before {:x}: {}",
                known.0, known.1
            );
            self.world.violate("G14 a recorded result never changes", text);
        }
    }

    /// A child gives what its program gives.
    fn check_child(&self, leaf: usize, input: Input, given: Option<&u64>) {
        let tasks = &self.world.scenario.workflows[leaf].tasks;
        let Some(given) = given else { return };
        let expected =
            tasks.first().and_then(|task| value(&task.program, input.last(task.rounds).0, 0));
        if expected != Some(*given) {
            let text = format!(
                "a child of task {} with {input:?} gave {given}, {expected:?} is right",
                self.task
            );
            self.world.violate(VALUES, text);
        }
    }
}
