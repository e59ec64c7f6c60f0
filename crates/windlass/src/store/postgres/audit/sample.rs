//! The duty that checks the promises on the newest runs, so that a breach is heard of where nobody
//! ever asks for an audit.

use std::time::Duration;

use super::{AuditOptions, AuditReport, audit_target};
use crate::store::postgres::PostgresStore;
use crate::store::postgres::fault::Fault;
use crate::store::postgres::repeat::repeat;
use crate::store::{Mandate, StoreError, Sweep};

/// How long one check may take before the sample is given up.
const CHECK_TIME_MAX: Duration = Duration::from_secs(10);

impl PostgresStore {
    /// Checks the promises on some of the newest runs. The error is what was found wrong.
    pub(in super::super) async fn audit_sample(
        &self,
        mandate: Mandate,
        limit: usize,
    ) -> Result<Sweep, StoreError> {
        let at = self.check_mandate(&mandate).await?;
        let runs = u32::try_from(limit).unwrap_or(u32::MAX);
        let mut options = AuditOptions::new().newest_runs(runs).statement_timeout(CHECK_TIME_MAX);
        if let Some(clock) = &self.clock {
            options = options.now(clock.now());
        }
        let report = audit_target(&self.target, &options).await;
        let report = report.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        match breach(&report) {
            Some(text) => Err(StoreError::Corrupt(text)),
            None => Ok(Sweep { at, moved: runs_in(&report), next_at: None }),
        }
    }

    /// The time, if the mandate is that of the leader.
    async fn check_mandate(
        &self,
        mandate: &Mandate,
    ) -> Result<windlass_core::Timestamp, StoreError> {
        repeat!(self.time_of(mandate))
    }

    async fn time_of(&self, mandate: &Mandate) -> Result<windlass_core::Timestamp, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        self.now_of_sweep(&tx, Some(mandate)).await
    }
}

/// How many runs were looked at: the check of their rounds has one row for each.
fn runs_in(report: &AuditReport) -> usize {
    let rounds = report.checks.iter().find(|check| check.id == "G2.rounds");
    rounds.map_or(0, |check| usize::try_from(check.checked).unwrap_or(usize::MAX))
}

/// The first promise that was found broken, in words.
fn breach(report: &AuditReport) -> Option<String> {
    let check = report.checks.iter().find(|check| check.is_violated())?;
    let example = check.examples.first().map(String::as_str).unwrap_or_default();
    Some(format!("{}: {} of them, such as: {example}", check.id, check.violations))
}
