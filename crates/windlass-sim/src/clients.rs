//! Programs that start, cancel and retry runs, and write down what they are told.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::{NewSignal, Store};
use windlass::{Error, ErrorKind, RunId, RunState, Windlass, Workflow};
use windlass_core::{Payload, SignalId, StepName};

use crate::dice::Dice;
use crate::input::Input;
use crate::journal::KEPT;
use crate::ledger::{Reply, StartEntry};
use crate::scenario::{KeySignalPlan, SignalPlan, StartPlan};
use crate::store::FaultyStore;
use crate::world::{SiteId, World};

/// How often a cancellation or a retry is repeated when the outcome is unknown.
const TRIES: usize = 4;

/// Lives the life of one client.
pub(crate) async fn live(
    world: Arc<World>,
    (windlass, store): (Windlass, FaultyStore),
    workflow: Workflow<Input>,
    plan: StartPlan,
    mut dice: Dice,
) {
    world.sleep_until(plan.at).await;
    let reply = start(&world, &windlass, &workflow, &plan, &mut dice).await;
    world.trace(|| format!("start {}: {reply:?}", plan.id));
    let run = match reply {
        Reply::Acknowledged(run) => run,
        Reply::Refused | Reply::Unknown => plan.id,
    };
    world.clients.lock().starts.push(StartEntry { plan: plan.clone(), reply });
    if reply == Reply::Refused {
        return;
    }
    let signals = send(&world, &store, run, &plan);
    let rest = steer(&world, &windlass, run, &plan, &mut dice);
    let undo = undo(&world, &windlass, run, plan.undo_after);
    tokio::join!(signals, rest, undo);
}

/// Cancels and retries a run as it was planned.
async fn steer(world: &World, windlass: &Windlass, run: RunId, plan: &StartPlan, dice: &mut Dice) {
    if let Some(after) = plan.cancel_after
        && world.sleep_within_faults(after).await
    {
        cancel(world, windlass, run, dice).await;
    }
    if let Some(after) = plan.retry_after {
        let mut pause = after;
        while world.sleep_within_faults(pause).await {
            retry(world, windlass, run).await;
            if let Ok(Some(undone_by)) = windlass.run(run).undone_by().await {
                retry(world, windlass, undone_by.id()).await;
            }
            pause = dice.millis(2_000..=15_000);
        }
    }
}

async fn start(
    world: &World,
    windlass: &Windlass,
    workflow: &Workflow<Input>,
    plan: &StartPlan,
    dice: &mut Dice,
) -> Reply<RunId> {
    for _ in 0..plan.tries {
        let tenant = &world.scenario.tenants[plan.tenant].name;
        let mut start = windlass.start(workflow, Input(plan.input)).id(plan.id).tenant(tenant);
        start = start.delay(plan.delay).priority(plan.priority);
        if let Some(key) = &plan.key {
            start = start.key(key);
        }
        match Reply::of(start.await.map(|run| run.id())) {
            Ok(Reply::Unknown) => {}
            Ok(reply) => return reply,
            Err(error) => {
                unexpected(world, "start", plan.id, &error);
                return Reply::Unknown;
            }
        }
        tokio::time::sleep(dice.millis(50..=2_000)).await;
    }
    Reply::Unknown
}

/// Sends signals, one after the other, each until it is answered.
async fn send(world: &World, store: &dyn Store, run: RunId, plan: &StartPlan) {
    for signal in &plan.signals {
        if !world.sleep_within_faults(signal.pause).await {
            return;
        }
        send_one(world, store, run, *signal).await;
    }
}

/// Sends a signal until it is answered, or for as long as its sender has patience.
async fn send_one(world: &World, store: &dyn Store, run: RunId, signal: SignalPlan) {
    let (Ok(name), Ok(value)) = (StepName::new(signal.name), Payload::encode(&signal.value)) else {
        return;
    };
    let id = SignalId::from_random(signal.id);
    let new = NewSignal { id, run, name, value };
    for _ in 0..TRIES {
        match Reply::of(store.signal(new.clone()).await.map_err(Error::from)) {
            Ok(Reply::Acknowledged(())) => {
                return world.trace(|| format!("run {run} signalled {signal:?}"));
            }
            Ok(Reply::Unknown) => {}
            // It has ended.
            Ok(Reply::Refused) => return,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => return unexpected(world, "signal", run, &error),
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

impl World {
    /// Someone answers a function with a signal, after a moment.
    pub(crate) fn call_back(self: &Arc<World>, run: RunId, signal: SignalPlan) {
        let world = Arc::clone(self);
        let store = FaultyStore::new(Arc::clone(self), SiteId::CLIENTS, None);
        tokio::spawn(async move {
            tokio::time::sleep(signal.pause).await;
            send_one(&world, &store, run, signal).await;
        });
    }

    /// Someone answers a function with a signal to a key, after a moment.
    pub(crate) fn call_back_to_key(self: &Arc<World>, plan: KeySignalPlan) {
        let store = FaultyStore::new(Arc::clone(self), SiteId::CLIENTS, None);
        let (world, windlass) = (Arc::clone(self), Windlass::with_store(Arc::new(store)));
        let plan = KeySignalPlan { at: self.elapsed() + plan.at, ..plan };
        tokio::spawn(send_to_key(world, windlass, plan));
    }
}

async fn cancel(world: &World, windlass: &Windlass, run: RunId, dice: &mut Dice) {
    for _ in 0..TRIES {
        match Reply::of(windlass.run(run).cancel("simulated").await) {
            Ok(Reply::Acknowledged(())) => {
                world.trace(|| format!("run {run} cancelled"));
                world.clients.lock().cancelled.push(run);
                return;
            }
            Ok(Reply::Unknown) => {}
            Ok(Reply::Refused) => return,
            // A start with an unknown outcome may not have happened.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => return unexpected(world, "cancel", run, &error),
        }
        if !world.sleep_within_faults(dice.millis(50..=1_000)).await {
            return;
        }
    }
}

async fn retry(world: &World, windlass: &Windlass, run: RunId) {
    let handle = windlass.run(run);
    match handle.get().await {
        Ok(record) if record.state == RunState::Failed => {}
        Ok(_) => return,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unavailable) => {
            return;
        }
        Err(error) => return unexpected(world, "get", run, &error),
    }
    for _ in 0..TRIES {
        match Reply::of(handle.retry().await) {
            Ok(Reply::Acknowledged(round)) => {
                world.trace(|| format!("run {run} retried, round {round}"));
                world.clients.lock().retried.push((run, round));
                return;
            }
            Ok(Reply::Unknown) => {}
            Ok(Reply::Refused) => return,
            Err(error) => return unexpected(world, "retry", run, &error),
        }
        if !world.sleep_within_faults(Duration::from_millis(300)).await {
            return;
        }
    }
}

/// Undoes a run that has ended.
async fn undo(world: &World, windlass: &Windlass, run: RunId, after: Option<Duration>) {
    let Some(after) = after else { return };
    if !world.sleep_within_faults(after).await {
        return;
    }
    for _ in 0..TRIES {
        world.clients.lock().to_undo.insert(run);
        match Reply::of(windlass.run(run).undo().await) {
            Ok(Reply::Acknowledged(by)) => {
                world.trace(|| format!("run {run} is undone by {}", by.id()));
                world.clients.lock().undone.push((run, by.id()));
                return;
            }
            Ok(Reply::Unknown) => {}
            // It has not ended, or has nothing to undo.
            Ok(Reply::Refused) => return,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => return unexpected(world, "undo", run, &error),
        }
        if !world.sleep_within_faults(Duration::from_millis(300)).await {
            return;
        }
    }
}

/// Sends a signal to a key when it is time.
pub(crate) async fn send_to_key(world: Arc<World>, windlass: Windlass, plan: KeySignalPlan) {
    world.sleep_until(plan.at).await;
    let tenant = &world.scenario.tenants[plan.tenant].name;
    let id = SignalId::from_random(plan.id);
    for _ in 0..TRIES {
        let signal = windlass.signal_key(plan.key, plan.name, &plan.value);
        match Reply::of(signal.tenant(tenant).id(id).keep_for(KEPT).await) {
            Ok(Reply::Unknown) => tokio::time::sleep(Duration::from_millis(300)).await,
            Ok(Reply::Acknowledged(())) => return world.trace(|| format!("sent {plan:?}")),
            Ok(Reply::Refused) => {
                return world.violate("G1 requests are answered", format!("{plan:?} is refused"));
            }
            Err(error) => {
                let text = format!("signal {plan:?}: {error}");
                return world.violate("G1 requests are answered", text);
            }
        }
    }
}

fn unexpected(world: &World, what: &str, run: RunId, error: &Error) {
    world.violate("G1 requests are answered", format!("{what} of run {run}: {error}"));
}
