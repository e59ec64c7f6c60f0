//! The verbs of queues, and of duties of programs: of these, the errors of handlers are sealed.

use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{DutyName, Timestamp};

use super::SealedStore;
use crate::store::{
    Connections, DutyClaim, DutyEnd, DutyMandate, DutyRecord, DutyStanding, DutyStore, QueueList,
    QueueStore, StoreError, Sweep,
};

#[async_trait]
impl QueueStore for SealedStore {
    async fn roll_up(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.inner.roll_up(limit).await
    }

    async fn list_queues(&self) -> Result<QueueList, StoreError> {
        self.inner.list_queues().await
    }

    fn connections(&self) -> Option<Connections> {
        self.inner.connections()
    }
}

#[async_trait]
impl DutyStore for SealedStore {
    async fn claim_duties(&self, claim: DutyClaim) -> Result<DutyStanding, StoreError> {
        let mut standing = self.inner.claim_duties(claim).await?;
        standing.duties.iter_mut().for_each(|duty| self.keys.open_duty(duty));
        Ok(standing)
    }

    async fn renew_duties(
        &self,
        mandates: Vec<DutyMandate>,
        ttl: Duration,
    ) -> Result<Vec<DutyName>, StoreError> {
        self.inner.renew_duties(mandates, ttl).await
    }

    async fn end_duty(
        &self,
        mut end: DutyEnd,
    ) -> Result<Option<(Timestamp, DutyRecord)>, StoreError> {
        self.keys.seal_duty_end(&mut end);
        let mut answer = self.inner.end_duty(end).await?;
        if let Some((_, duty)) = &mut answer {
            self.keys.open_duty(duty);
        }
        Ok(answer)
    }

    async fn list_duties(&self) -> Result<Vec<DutyRecord>, StoreError> {
        let mut duties = self.inner.list_duties().await?;
        duties.iter_mut().for_each(|duty| self.keys.open_duty(duty));
        Ok(duties)
    }

    async fn forget_duty(&self, name: DutyName) -> Result<bool, StoreError> {
        self.inner.forget_duty(name).await
    }
}
