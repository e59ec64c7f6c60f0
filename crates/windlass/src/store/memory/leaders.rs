//! Who does the background duties.

use windlass_core::{CandidateId, Timestamp};

use super::state::State;
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
        Outlook { at: shared.now, promote_at: shared.next_due(), reap_at: self.next_lease_end() }
    }

    /// When the next lease of a worker that holds tasks ends; a dying worker's has.
    pub(super) fn next_lease_end(&self) -> Option<Timestamp> {
        let busy = self.shared.workers.values().filter(|worker| !worker.tasks.is_empty());
        busy.map(|worker| if worker.is_dead { self.shared.now } else { worker.lease_until }).min()
    }
}
