//! Duties of programs.

use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{DutyName, Timestamp};

use super::MemoryStore;
use super::state::State;
use crate::planted::{Planted, PlantedBug};
use crate::store::duties::too_many;
use crate::store::{
    DUTIES_MAX, DutyClaim, DutyDeclaration, DutyEnd, DutyMandate, DutyOutcome, DutyRecord,
    DutyStanding, DutyStore, StoreError,
};

impl State {
    /// Makes those known that are not.
    fn declare_duties(&mut self, duties: &[DutyDeclaration]) -> Result<(), StoreError> {
        let mut new = duties.iter().filter(|it| !self.duties.contains_key(&it.name));
        if let Some(over) = new.nth(DUTIES_MAX.saturating_sub(self.duties.len())) {
            return Err(too_many(&over.name));
        }
        for DutyDeclaration { name, every, .. } in duties {
            let record = || DutyRecord::new(name.clone(), *every, self.shared.now);
            self.duties.entry(name.clone()).or_insert_with(record);
        }
        Ok(())
    }

    fn claim_duties(&mut self, claim: &DutyClaim) -> Result<DutyStanding, StoreError> {
        let now = self.shared.now;
        self.declare_duties(&claim.duties)?;
        let mut duties = Vec::new();
        for declared in &claim.duties {
            let Some(record) = self.duties.get_mut(&declared.name) else { continue };
            self.shared.wakes.duties |= record.is_changed_by(claim, declared, now);
            record.claim(claim, declared, now);
            let is_blind = self.shared.planted.has(PlantedBug::DutyClaimedTwice);
            if is_blind && record.next_at <= now && !record.is_held_by(claim.candidate) {
                record.begin(claim, now);
            }
            duties.push(record.clone());
        }
        Ok(DutyStanding { at: now, duties })
    }

    fn renew_duties(&mut self, mandates: &[DutyMandate], ttl: Duration) -> Vec<DutyName> {
        let mut renewed = Vec::new();
        for mandate in mandates {
            let record = self.duties.get_mut(&mandate.name);
            if let Some(record) = record.filter(|record| record.allows(mandate)) {
                record.renew(self.shared.now + ttl);
                renewed.push(mandate.name.clone());
            }
        }
        renewed
    }

    fn end_duty(&mut self, end: &DutyEnd) -> Option<(Timestamp, DutyRecord)> {
        let record = self.duties.get_mut(&end.mandate.name)?;
        let is_its = end_by_rule(record, end, self.shared.now, self.shared.planted);
        if !is_its {
            return None;
        }
        self.shared.wakes.duties = true;
        self.shared.wakes.leaders |= end.outcome == DutyOutcome::GivenUp;
        Some((self.shared.now, record.clone()))
    }

    fn forget_duty(&mut self, name: &DutyName) -> Result<bool, StoreError> {
        let Some(record) = self.duties.get(name) else { return Ok(false) };
        record.check_forgettable(self.shared.now)?;
        self.duties.remove(name);
        Ok(true)
    }
}

/// Ends a term as the record does, or by a deliberate mistake.
fn end_by_rule(record: &mut DutyRecord, end: &DutyEnd, now: Timestamp, planted: Planted) -> bool {
    if planted.has(PlantedBug::DutyEndedWithoutTerm) && record.held_until().is_some() {
        record.apply(end, now);
        return true;
    }
    let term = record.held_until().map(|_| record.term);
    let is_its = record.end(end, now);
    if planted.has(PlantedBug::DutyDrifts) && term == Some(end.mandate.term) && is_its {
        record.next_at = now + record.every;
    }
    is_its
}

#[async_trait]
impl DutyStore for MemoryStore {
    async fn claim_duties(&self, claim: DutyClaim) -> Result<DutyStanding, StoreError> {
        claim.check()?;
        self.transact(|state| state.claim_duties(&claim))
    }

    async fn renew_duties(
        &self,
        mandates: Vec<DutyMandate>,
        ttl: Duration,
    ) -> Result<Vec<DutyName>, StoreError> {
        Ok(self.transact(|state| state.renew_duties(&mandates, ttl)))
    }

    async fn end_duty(&self, end: DutyEnd) -> Result<Option<(Timestamp, DutyRecord)>, StoreError> {
        Ok(self.transact(|state| state.end_duty(&end)))
    }

    async fn list_duties(&self) -> Result<Vec<DutyRecord>, StoreError> {
        Ok(self.transact(|state| state.duties.values().cloned().collect()))
    }

    async fn forget_duty(&self, name: DutyName) -> Result<bool, StoreError> {
        self.transact(|state| state.forget_duty(&name))
    }
}
