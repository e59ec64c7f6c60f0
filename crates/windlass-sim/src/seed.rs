//! One seed from its beginning to its end.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use windlass::store::{
    FIRES_KEPT, Fire, PAGE_MAX, RunFilter, RunRecord, ScheduleFilter, ScheduleRecord,
    ScheduleStore as _, Store, TaskRecord,
};
use windlass::testing::invariants::Violation;
use windlass::{Error, Event, Payload, PlantedBug, RunState, Windlass};
use windlass_core::undo::UNDO_SUFFIX;
use windlass_core::{StepRecord, TaskEventKind, TaskId};

use crate::cluster::{self, Member};
use crate::dice::Dice;
use crate::faults::FaultCounts;
use crate::input::Input;
use crate::scenario::{Scenario, SchedulePlan, quiet_max};
use crate::store::FaultyStore;
use crate::world::{SiteId, World};
use crate::{checks, clients, duties, handlers, hints, operators, panics, schedules};

/// How often a simulation that is to come to its end is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How long zombies may still talk after everything has ended.
const AFTERMATH: Duration = Duration::from_secs(2);

/// How long at most everything takes once faults have stopped. Work is finite and
/// [`quiet_max`] finds what is stuck; this finds what goes on for ever.
const SETTLE_MAX: Duration = Duration::from_secs(6 * 60 * 60);

/// How to simulate a seed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// The bug that everyone has.
    pub(crate) bug: Option<PlantedBug>,
    /// Print what happens.
    pub(crate) is_traced: bool,
    /// Compute the fingerprint.
    pub(crate) has_fingerprint: bool,
}

/// A run with everything that is stored of it.
pub(crate) struct RunFile {
    /// The run.
    pub(crate) run: RunRecord,
    pub(crate) input: Payload,
    /// Its tasks.
    pub(crate) tasks: Vec<TaskRecord>,
    /// Its history.
    pub(crate) events: Vec<Event>,
    /// What is known of the calls of each task.
    pub(crate) steps: Vec<Vec<StepRecord>>,
}

/// A schedule that was made.
pub(crate) struct MadeSchedule {
    /// What was planned.
    pub(crate) plan: SchedulePlan,
    /// What became of it.
    pub(crate) record: ScheduleRecord,
    /// What is kept of its history, the newest line first.
    pub(crate) fires: Vec<Fire>,
}

impl RunFile {
    /// Whether it undoes another.
    pub(crate) fn is_undo(&self) -> bool {
        self.run.workflow.as_str().ends_with(UNDO_SUFFIX)
    }
}

/// What became of a seed.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The broken promises.
    pub(crate) violations: Vec<Violation>,
    /// How many runs there were.
    pub(crate) runs: usize,
    /// How many tasks they had.
    pub(crate) tasks: usize,
    /// How often one was begun.
    pub(crate) attempts: usize,
    /// The faults.
    pub(crate) faults: FaultCounts,
    /// A number that depends on every event of every run.
    pub(crate) fingerprint: u64,
    /// Every run.
    pub(crate) files: Vec<RunFile>,
}

/// Simulates a seed on this thread.
pub(crate) fn simulate(seed: u64, options: Options) -> Outcome {
    panics::watch();
    panics::take_unexpected();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without IO needs nothing that could be missing");
    let run = AssertUnwindSafe(|| runtime.block_on(live(seed, options)));
    let outcome = std::panic::catch_unwind(run);
    // What the runtime still holds is dropped before panics are counted.
    drop(runtime);
    let mut outcome = match outcome {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => {
            let text = format!("the scenario cannot be played: {error}");
            let violations = vec![Violation { promise: "the simulation itself", text }];
            Outcome { violations, ..Outcome::default() }
        }
        Err(_) => Outcome::default(),
    };
    for text in panics::take_unexpected() {
        outcome.violations.push(Violation { promise: "the engine does not panic", text });
    }
    outcome
}

async fn live(seed: u64, options: Options) -> Result<Outcome, Error> {
    let scenario = Scenario::new(seed);
    if options.is_traced {
        println!("{scenario}");
    }
    let world = World::new(scenario, options.bug, options.is_traced);
    hints::listen(&world);
    let workflows: Arc<[_]> = handlers::build(&world)?.into();
    let mut dice = Dice::new(seed, "processes");
    for tenant in &world.scenario.tenants {
        let windlass = Windlass::with_store(Arc::clone(&world.store) as Arc<dyn Store>);
        windlass.set_weight(&tenant.name, tenant.weight).await?;
    }
    let posts: Vec<_> = (0..world.scenario.posts)
        .map(|_| {
            tokio::spawn(cluster::staff(Arc::clone(&world), Arc::clone(&workflows), dice.fork()))
        })
        .collect();
    let clients = spawn_clients(&world, &workflows);
    let mut members = Vec::new();
    for post in posts {
        members.extend(post.await.ok().transpose()?.flatten());
    }
    for client in clients {
        // A panic of a client is noted by the hook.
        let _ = client.await;
    }
    let is_covered = members.iter().any(Member::is_complete);
    if !is_covered || dice.chance(0.5) {
        members.push(cluster::relief(&world, &workflows, &mut dice)?);
    }
    let staffed_at = world.now();
    settle(&world).await;
    duties::settle(&world).await;
    tokio::time::sleep(AFTERMATH).await;
    for member in members {
        member.kill(&world).await;
    }
    let files = read_files(&world).await?;
    let made = read_schedules(&world).await;
    Ok(judge(&world, &workflows, (files, made), staffed_at, options))
}

fn spawn_clients(
    world: &Arc<World>,
    workflows: &[windlass::Workflow<Input>],
) -> Vec<tokio::task::JoinHandle<()>> {
    let mut dice = Dice::new(world.scenario.seed, "clients");
    let store = FaultyStore::new(Arc::clone(world), SiteId::CLIENTS, None);
    let windlass = Windlass::with_store(Arc::new(store.clone()));
    let plans = world.scenario.starts.iter();
    let client = |plan: &crate::scenario::StartPlan| {
        let workflow = workflows[plan.workflow].clone();
        let (world, link) = (Arc::clone(world), (windlass.clone(), store.clone()));
        tokio::spawn(clients::live(world, link, workflow, plan.clone(), dice.fork()))
    };
    let mut clients: Vec<_> = plans.map(client).collect();
    let send = |plan: &crate::scenario::KeySignalPlan| {
        tokio::spawn(clients::send_to_key(Arc::clone(world), windlass.clone(), *plan))
    };
    clients.extend(world.scenario.key_signals.iter().map(send));
    let see_to = |plan: &crate::scenario::OperatorPlan| {
        tokio::spawn(operators::see_to(Arc::clone(world), store.clone(), *plan))
    };
    clients.extend(world.scenario.operators.iter().map(see_to));
    for plan in &world.scenario.schedules {
        let (workflow, dice) = (workflows[plan.workflow].clone(), dice.fork());
        let live =
            schedules::live(Arc::clone(world), windlass.clone(), workflow, plan.clone(), dice);
        clients.push(tokio::spawn(live));
    }
    clients
}

/// Waits until every run has ended, or until it is clear that one will not.
async fn settle(world: &World) {
    let running = RunFilter { state: Some(RunState::Running), limit: 1, ..RunFilter::default() };
    let (mut moves, mut moved_at) = (world.truth.lock().moves, world.elapsed());
    let give_up_at = world.elapsed() + SETTLE_MAX;
    loop {
        let page = world.store.list_runs(running.clone()).await;
        if page.is_ok_and(|page| page.runs.is_empty()) && schedules::are_over(world).await {
            return;
        }
        world.prompt().await;
        world.clear_dead_letters(world.elapsed() - moved_at > quiet_max() / 2).await;
        let (now, seen) = (world.elapsed(), world.truth.lock().moves);
        if seen != moves {
            (moves, moved_at) = (seen, now);
        }
        if now - moved_at > quiet_max() || now > give_up_at {
            world.trace(|| "it does not end".to_owned());
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn read_files(world: &World) -> Result<Vec<RunFile>, Error> {
    let windlass = Windlass::with_store(Arc::clone(&world.store) as Arc<dyn Store>);
    let mut files = Vec::new();
    let mut filter = RunFilter::default();
    loop {
        let page = windlass.list(filter.clone()).await?;
        for listed in page.runs {
            let handle = windlass.run(listed.id);
            let run = handle.get().await?;
            let input = run.input.clone().expect("a run that is read alone has its input");
            let (tasks, events) = (handle.tasks().await?, handle.history().await?);
            let mut steps = Vec::new();
            for index in tasks.iter().map(|task| task.index) {
                let task = TaskId { run: run.id, index };
                steps.push(world.store.list_steps(task, None, PAGE_MAX).await.unwrap_or_default());
            }
            files.push(RunFile { run, input, tasks, events, steps });
        }
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return Ok(files),
        }
    }
}

/// The schedules that were made, with what was planned and what became of their times.
async fn read_schedules(world: &World) -> Vec<MadeSchedule> {
    let mut made = Vec::new();
    let all = world.store.list_schedules(ScheduleFilter::default()).await.unwrap_or_default();
    for record in all.schedules {
        let is_it = |plan: &&SchedulePlan| plan.name == record.schedule.key.name.as_str();
        if let Some(plan) = world.scenario.schedules.iter().find(is_it) {
            let key = record.schedule.key.clone();
            let fires = world.store.list_fires(key, FIRES_KEPT).await.unwrap_or_default();
            made.push(MadeSchedule { plan: plan.clone(), record, fires });
        }
    }
    made
}

fn judge(
    world: &World,
    workflows: &[windlass::Workflow<Input>],
    (files, made): (Vec<RunFile>, Vec<MadeSchedule>),
    staffed_at: windlass::Timestamp,
    options: Options,
) -> Outcome {
    let mut violations = std::mem::take(&mut *world.violations.lock());
    let undos = workflows.iter().filter_map(|workflow| workflow.definition().to_undo().ok());
    let undos: Vec<_> = undos.collect();
    let (files, undos) = (files, &undos);
    let evidence =
        checks::Evidence { world, workflows, undos, files: &files, schedules: &made, staffed_at };
    violations.extend(evidence.check());
    let is_start = |event: &&Event| {
        event.task().is_some_and(|task| matches!(task.kind, TaskEventKind::Started { .. }))
    };
    let attempts = files.iter().map(|file| file.events.iter().filter(is_start).count()).sum();
    Outcome {
        violations,
        runs: files.len(),
        tasks: files.iter().map(|file| file.tasks.len()).sum(),
        attempts,
        faults: *world.counts.lock(),
        fingerprint: if options.has_fingerprint { fingerprint(&files) } else { 0 },
        files,
    }
}

/// A number that depends on every event of every run and on their order.
fn fingerprint(files: &[RunFile]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        for event in &file.events {
            format!("{event:?}").hash(&mut hasher);
        }
        format!("{:?}", file.tasks).hash(&mut hasher);
    }
    hasher.finish()
}
