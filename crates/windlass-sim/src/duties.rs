//! Duties of the program: what their handlers do, and what the store gave to whom (G16).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass::store::{DutyClaim, DutyEnd, DutyOutcome, DutyRecord, DutyStanding, DutyStore as _};
use windlass::{DutyCtx, DutyName, TaskError, Timestamp};

use crate::dice::{Dice, mix};
use crate::panics::EXPECTED_PANIC;
use crate::scenario::{DUTY_TAKES_MAX, DutyPlan, LEADER_TTL_MAX};
use crate::world::World;

const ALONE: &str = "G16 one process is at a duty at a time";
const REPLACED: &str = "G16 a process that was replaced ends nothing";
const TIMES: &str = "G16 each time of a duty is served once, and without drift";
const SERVED: &str = "G16 duties are served";

/// The longest step of a handler.
const STEP_MAX: Duration = Duration::from_millis(300);

/// How long after it is due at most a duty has been served once the faults have stopped: someone
/// who was lost is waited for, the handler takes its time, and a pause after errors may be left.
const LATE_MAX: Duration = Duration::from_secs(10);

/// How often each time of each duty was served.
pub(crate) type Served = BTreeMap<(DutyName, Timestamp), u64>;

/// Does a duty as its plan says, and looks at every step whether it is to.
pub(crate) async fn work(world: Arc<World>, plan: DutyPlan, ctx: DutyCtx) -> Result<(), TaskError> {
    let place = plan.name.bytes().fold(ctx.term().0, |sum, byte| mix(sum, u64::from(byte)));
    let mut dice = Dice::new(mix(world.scenario.seed, place), "a duty");
    let ends_at = Instant::now() + dice.up_to(plan.takes);
    let (fails, panics) = (dice.chance(plan.fails), dice.chance(plan.fails / 4.0));
    let obeys = dice.chance(plan.obeys);
    world.trace(|| format!("{} for {}, term {}", plan.name, ctx.nominal(), ctx.term()));
    loop {
        world.see_at_work(&ctx).await;
        let left = ends_at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        tokio::select! {
            biased;
            () = ctx.cancelled(), if obeys => return Err(TaskError::new("it was told to end")),
            () = tokio::time::sleep(dice.up_to(STEP_MAX).min(left)) => {}
        }
    }
    if panics {
        panic!("{EXPECTED_PANIC}");
    }
    if fails { Err(TaskError::new("it failed")) } else { Ok(()) }
}

/// Waits until each duty was served once more, or until it is clear that one will not be.
pub(crate) async fn settle(world: &World) {
    let Some(every) = world.scenario.duties.iter().map(|plan| plan.every).max() else { return };
    let begin = world.now();
    let give_up_at = Instant::now() + 2 * (every + DUTY_TAKES_MAX + LEADER_TTL_MAX + LATE_MAX);
    loop {
        let all = world.store.list_duties().await.unwrap_or_default();
        let is_served = |plan: &&DutyPlan| {
            let record = all.iter().find(|record| record.name.as_str() == plan.name);
            let last_run = record.and_then(|record| record.last_run);
            last_run.is_some_and(|(at, _)| at >= begin)
        };
        let Some(late) = world.scenario.duties.iter().find(|plan| !is_served(plan)) else { return };
        if Instant::now() > give_up_at {
            world.violate(SERVED, format!("{late:?} was not served since {begin}: {all:#?}"));
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl World {
    /// A duty as the store has it.
    pub(crate) async fn duty(&self, name: &str) -> Option<DutyRecord> {
        let all = self.store.list_duties().await.unwrap_or_default();
        all.into_iter().find(|record| record.name.as_str() == name)
    }

    /// A handler runs, and nobody else may.
    async fn see_at_work(&self, ctx: &DutyCtx) {
        let record = self.duty(ctx.name()).await;
        let now = self.now();
        let is_its = record.as_ref().is_some_and(|record| {
            record.term == ctx.term() && record.held_until().is_some_and(|until| until > now)
        });
        if !is_its {
            self.violate(ALONE, format!("{ctx:?} runs at {now}, the store has {record:?}"));
        }
    }

    /// A claim was answered.
    pub(crate) fn note_duty_claim(
        &self,
        before: &[DutyRecord],
        claim: &DutyClaim,
        standing: &DutyStanding,
    ) {
        for record in &standing.duties {
            let Some(before) = before.iter().find(|it| it.name == record.name) else { continue };
            if record.term != before.term && !before.is_free(standing.at) {
                let process = &claim.process;
                self.violate(ALONE, format!("{process} was given {record:?} while {before:?}"));
            }
        }
    }

    /// An end was answered.
    pub(crate) fn note_duty_end(
        &self,
        before: Option<&DutyRecord>,
        end: &DutyEnd,
        answer: Option<&(Timestamp, DutyRecord)>,
    ) {
        let Some(before) = before else { return };
        let holder = before.holder.as_ref().map(|holder| holder.candidate);
        let is_its = before.term == end.mandate.term && holder == Some(end.mandate.candidate);
        let Some((at, after)) = answer.filter(|_| is_its) else {
            if is_its || answer.is_some() {
                let text = format!("{end:?} of {before:?} was answered {answer:?}");
                self.violate(REPLACED, text);
            }
            return;
        };
        let nominal = before.next_at;
        let is_applied = before.held_until().is_some();
        let moves_on = is_applied && end.outcome != DutyOutcome::GivenUp;
        let every = before.every.as_micros() as i64;
        let late = (at.as_micros() - nominal.as_micros()).max(0);
        let next = match moves_on {
            true => Timestamp::from_micros(nominal.as_micros() + (late / every + 1) * every),
            false => nominal,
        };
        if after.next_at != next {
            let text = format!("{after:?} follows {before:?}, it is to be due {next}");
            self.violate(TIMES, text);
        }
        let mut truth = self.truth.lock();
        let served = truth.duties.entry((before.name.clone(), nominal)).or_default();
        *served += u64::from(moves_on);
        let is_twice = *served > 1;
        drop(truth);
        if is_twice {
            self.violate(TIMES, format!("{nominal} was served twice: {after:?}"));
        }
    }
}
