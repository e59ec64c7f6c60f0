//! Programs that make schedules, and operators that see to them.

use std::sync::Arc;
use std::time::Duration;

use windlass::schedule::{Cadence, CadenceError, Missed, Schedule, ScheduleHandle};
use windlass::store::{ScheduleFilter, ScheduleKey, ScheduleStore as _};
use windlass::{RunId, ScheduleName, Tenant, Windlass, Workflow};

use crate::dice::Dice;
use crate::input::Input;
use crate::scenario::SchedulePlan;
use crate::world::World;

/// The grace where missed times do not all run: shorter than most outages.
const GRACE: Duration = Duration::from_secs(2);

/// Makes a schedule, and asks again until it is answered or the faults have stopped; then triggers
/// and pauses it as planned.
pub(crate) async fn live(
    world: Arc<World>,
    windlass: Windlass,
    workflow: Workflow<Input>,
    plan: SchedulePlan,
    mut dice: Dice,
) {
    world.sleep_until(plan.at).await;
    let Ok(cadence) = cadence(&plan) else { return };
    let ends_at = world.now() + plan.lasts;
    let tenant = world.scenario.tenants[plan.tenant].name.clone();
    loop {
        let mut schedule = Schedule::new(&plan.name, &workflow, Input(plan.input), cadence.clone())
            .tenant(&tenant)
            .ends_at(ends_at)
            .jitter(plan.jitter)
            .missed(plan.missed)
            .overlap(plan.overlap);
        match plan.missed {
            Missed::All(_) => {}
            Missed::Skip | Missed::Once => schedule = schedule.grace(GRACE),
        }
        let answer = windlass.schedule(schedule).await;
        world.trace(|| format!("{}: {:?}", plan.name, answer.as_ref().map(|it| it.next_at)));
        match answer {
            Ok(_) => break,
            Err(error) if error.is_retryable() && !world.is_healed() => {}
            Err(error) if error.is_retryable() => return,
            // It came through when all its times were past.
            Err(_) if world.now() + plan.interval > ends_at => return,
            Err(error) => {
                world.violate("schedules can be made", error.to_string());
                return;
            }
        }
        tokio::time::sleep(dice.millis(50..=2_000)).await;
    }
    let Ok(handle) = windlass.scheduled(&tenant, &plan.name) else { return };
    for _ in 0..plan.triggers {
        world.sleep_within_faults(dice.up_to(plan.lasts / 4)).await;
        // With an id of the seed's.
        let run = RunId::from_parts(world.now(), dice.large_number());
        let (Ok(tenant), Ok(name)) = (Tenant::new(&tenant), ScheduleName::new(&plan.name)) else {
            return;
        };
        let key = ScheduleKey { tenant, name };
        world.triggers.lock().insert(run);
        let answer = windlass.store().trigger_schedule(key, run).await;
        world.trace(|| format!("{} is triggered: {:?}", plan.name, answer.is_ok()));
    }
    rest(&world, &handle, &plan, &mut dice).await;
}

fn cadence(plan: &SchedulePlan) -> Result<Cadence, CadenceError> {
    match plan.is_cron {
        true => Cadence::cron(&format!("*/{} * * * * *", plan.interval.as_secs()), "UTC"),
        false => Cadence::every(plan.interval),
    }
}

/// Pauses a schedule for as long as planned.
async fn rest(world: &World, handle: &ScheduleHandle, plan: &SchedulePlan, dice: &mut Dice) {
    let Some((after, time)) = plan.rest else { return };
    world.sleep_within_faults(after).await;
    world.rests.lock().push((plan.name.clone(), world.now()));
    // Until there is an answer: the faults stop some day.
    while handle.pause().await.is_err() {
        tokio::time::sleep(dice.millis(50..=2_000)).await;
    }
    world.trace(|| format!("{} is paused", plan.name));
    world.sleep_within_faults(time).await;
    while handle.resume().await.is_err() {
        tokio::time::sleep(dice.millis(50..=2_000)).await;
    }
    world.trace(|| format!("{} goes on", plan.name));
}

/// Whether no schedule fires again.
pub(crate) async fn are_over(world: &World) -> bool {
    let all = world.store.list_schedules(ScheduleFilter::default()).await.unwrap_or_default();
    let is_over = all.schedules.iter().all(|it| it.next_at.is_none() && it.queued_at.is_none());
    if !is_over {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_over
}
