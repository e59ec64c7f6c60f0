//! The verbs of duties of programs, over a link with faults.

use std::time::Duration;

use async_trait::async_trait;
use windlass::store::{
    DutyClaim, DutyEnd, DutyMandate, DutyRecord, DutyStanding, DutyStore, StoreError,
};
use windlass::{DutyName, Timestamp};

use super::FaultyStore;
use crate::faults::Verb;

#[async_trait]
impl DutyStore for FaultyStore {
    async fn claim_duties(&self, claim: DutyClaim) -> Result<DutyStanding, StoreError> {
        self.deliver(Verb::Lead, claim, |world, claim| {
            Box::pin(async move {
                let before = world.store.list_duties().await?;
                let standing = world.store.claim_duties(claim.clone()).await?;
                world.note_duty_claim(&before, &claim, &standing);
                Ok(standing)
            })
        })
        .await
    }

    async fn renew_duties(
        &self,
        mandates: Vec<DutyMandate>,
        ttl: Duration,
    ) -> Result<Vec<DutyName>, StoreError> {
        self.deliver(Verb::Lead, (mandates, ttl), |world, (mandates, ttl)| {
            Box::pin(async move { world.store.renew_duties(mandates, ttl).await })
        })
        .await
    }

    async fn end_duty(&self, end: DutyEnd) -> Result<Option<(Timestamp, DutyRecord)>, StoreError> {
        self.deliver(Verb::Resign, end, |world, end| {
            Box::pin(async move {
                let before = world.duty(end.mandate.name.as_str()).await;
                let answer = world.store.end_duty(end.clone()).await?;
                world.note_duty_end(before.as_ref(), &end, answer.as_ref());
                Ok(answer)
            })
        })
        .await
    }

    async fn list_duties(&self) -> Result<Vec<DutyRecord>, StoreError> {
        self.deliver(Verb::Read, (), |world, ()| {
            Box::pin(async move { world.store.list_duties().await })
        })
        .await
    }

    async fn forget_duty(&self, name: DutyName) -> Result<bool, StoreError> {
        self.deliver(Verb::Resign, name, |world, name| {
            Box::pin(async move { world.store.forget_duty(name).await })
        })
        .await
    }
}
