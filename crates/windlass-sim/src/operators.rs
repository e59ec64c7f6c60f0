//! Those who see to dead letters.

use std::num::NonZeroU32;
use std::sync::Arc;

use windlass::store::{
    Author, DeadLetterFilter, Discard, PAGE_MAX, Pace, Redrive, Store, StoreError,
};
use windlass_core::{ActionId, Operator, TaskState};

use crate::scenario::OperatorPlan;
use crate::store::FaultyStore;
use crate::world::World;

/// How often an action is repeated when its outcome is unknown.
const TRIES: usize = 4;

fn anna() -> Option<Operator> {
    Operator::new("anna@ops").ok()
}

/// Sees to all dead letters when it is time.
pub(crate) async fn see_to(world: Arc<World>, store: FaultyStore, plan: OperatorPlan) {
    world.sleep_until(plan.at).await;
    let Some(by) = anna().map(Author::from) else { return };
    let (id, filter) = (ActionId::from_random(plan.id), DeadLetterFilter::default());
    for _ in 0..TRIES {
        let answer = if plan.redrives {
            let per_second = plan.per_second.and_then(NonZeroU32::new);
            let pace = per_second.map(|per_second| Pace { per_second, from: None });
            let (by, filter) = (by.clone(), filter.clone());
            let redrive = Redrive { id, by, filter, after: None, limit: 0, pace };
            store.redrive(redrive).await.map(|answer| answer.runs)
        } else {
            let (by, filter) = (by.clone(), filter.clone());
            let discard = Discard { id, by, filter, after: None, limit: 0 };
            store.discard(discard).await.map(|answer| answer.runs)
        };
        match answer {
            Ok(runs) => return world.trace(|| format!("{plan:?}: {runs:?}")),
            Err(StoreError::Unavailable(_)) => {}
            Err(error) => {
                return world.violate("G1 requests are answered", format!("{plan:?}: {error}"));
            }
        }
        if !world.sleep_within_faults(std::time::Duration::from_millis(300)).await {
            return;
        }
    }
}

impl World {
    /// Discards all dead letters, so that no stream is halted. With `is_last`, runs are cancelled
    /// that halt a stream and wait for it themselves: nobody can discard what is theirs.
    pub(crate) async fn clear_dead_letters(&self, is_last: bool) {
        let filter = DeadLetterFilter::default();
        let Ok(page) = self.store.list_dead_letters(filter.clone(), None, PAGE_MAX).await else {
            return;
        };
        let Some(by) = anna().filter(|_| !page.letters.is_empty()) else { return };
        let id = ActionId::from_random(self.elapsed().as_nanos());
        let discard = Discard { id, by: by.into(), filter, after: None, limit: 0 };
        match self.store.discard(discard).await {
            Ok(answer) => self.note_discard(id, &answer.runs),
            Err(error) => self.note_error(&error),
        }
        for letter in page.letters.iter().filter(|letter| is_last && !letter.lanes.is_empty()) {
            let run = letter.task.run;
            let tasks = self.store.list_tasks(run, None, PAGE_MAX).await.unwrap_or_default();
            if tasks.iter().any(|task| task.state == TaskState::Waiting) {
                self.trace(|| format!("run {run} waits behind itself and is cancelled"));
                // It may have ended meanwhile.
                let _ = self.store.cancel_run(run, None).await;
            }
        }
    }
}
