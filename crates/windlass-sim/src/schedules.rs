//! Programs that make schedules.

use std::sync::Arc;
use std::time::Duration;

use windlass::schedule::{Cadence, Missed, Schedule};
use windlass::store::{ScheduleFilter, ScheduleStore as _};
use windlass::{Windlass, Workflow};

use crate::dice::Dice;
use crate::input::Input;
use crate::scenario::SchedulePlan;
use crate::world::World;

/// Makes a schedule, and asks again until it is answered or the faults have stopped.
pub(crate) async fn live(
    world: Arc<World>,
    windlass: Windlass,
    workflow: Workflow<Input>,
    plan: SchedulePlan,
    mut dice: Dice,
) {
    world.sleep_until(plan.at).await;
    let Ok(cadence) = Cadence::every(plan.interval) else { return };
    let ends_at = world.now() + plan.lasts;
    loop {
        let tenant = &world.scenario.tenants[plan.tenant].name;
        let schedule = Schedule::new(&plan.name, &workflow, Input(plan.input), cadence.clone())
            .tenant(tenant)
            .ends_at(ends_at)
            .jitter(plan.jitter)
            .missed(Missed::All(1_000));
        let answer = windlass.schedule(schedule).await;
        world.trace(|| format!("{}: {:?}", plan.name, answer.as_ref().map(|it| it.next_at)));
        match answer {
            Ok(_) => return,
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
}

/// Whether a schedule fires again.
pub(crate) async fn are_over(world: &World) -> bool {
    let all = world.store.list_schedules(ScheduleFilter::default()).await.unwrap_or_default();
    let is_over = all.schedules.iter().all(|record| record.next_at.is_none());
    if !is_over {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_over
}
