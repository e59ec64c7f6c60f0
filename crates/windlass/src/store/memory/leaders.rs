//! Who does the background duties.

use windlass_core::{CandidateId, Fence, TaskId, TaskState, Timestamp};

use super::state::{State, Worker};
use crate::planted::PlantedBug;
use crate::store::{Candidacy, LeaderRecord, Mandate, Outlook, Standing, StoreError, Tallies};

impl State {
    pub(super) fn lead(&mut self, candidacy: &Candidacy) -> Standing {
        let now = self.shared.now;
        for leader in &mut self.leaders {
            leader.lead(candidacy, now);
        }
        Standing { leaders: self.leaders.to_vec(), outlook: self.outlook() }
    }

    pub(super) fn resign(&mut self, candidate: CandidateId, tallies: &Tallies) {
        for leader in &mut self.leaders {
            self.shared.wakes.leaders |= leader.resign(candidate, tallies);
        }
    }

    /// Refuses whoever does not lead.
    pub(super) fn check_mandate(&self, mandate: &Mandate) -> Result<(), StoreError> {
        let Mandate { duty, term, .. } = *mandate;
        let is_blind = self.shared.planted.has(PlantedBug::SweepWithoutTerm);
        let allows = |leader: &LeaderRecord| leader.duty == duty && leader.allows(mandate);
        match is_blind || self.leaders.iter().any(allows) {
            true => Ok(()),
            false => Err(StoreError::TermOver { duty, term }),
        }
    }

    pub(super) fn outlook(&self) -> Outlook {
        let shared = &self.shared;
        let notices = (!shared.notices.is_empty()).then_some(shared.now);
        let promote_at = [shared.next_due(), notices].into_iter().flatten().min();
        let fire_at = self.schedules.next_at(shared.now);
        Outlook { at: shared.now, promote_at, reap_at: self.next_lease_end(), fire_at }
    }

    /// When the next lease of a worker that holds tasks ends, a dying worker's has; or that of a
    /// task, by its visibility timeout.
    pub(super) fn next_lease_end(&self) -> Option<Timestamp> {
        let busy = self.shared.workers.values().filter(|worker| !worker.tasks.is_empty());
        let end = |worker: &Worker| match worker.is_dead {
            true => self.shared.now,
            false => worker.lease_until,
        };
        let is_held = |id: &TaskId, fence: Fence| {
            let run = self.runs.get(&id.run);
            let task = run.and_then(|run| run.tasks.get(id.index.as_usize()));
            task.is_some_and(|task| task.state == TaskState::Running && task.fence == fence)
        };
        let mut limited = self.shared.take_backs.iter();
        let take_back = limited.find(|(_, id, fence)| is_held(id, *fence)).map(|(at, ..)| *at);
        busy.map(end).chain(take_back).min()
    }
}
