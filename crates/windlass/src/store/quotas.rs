//! How much each tenant may ask of the servers.
//!
//! A quota is a row: of one tenant, or of all that have none of their own. Without one, nothing is
//! limited. Stores keep quotas and count what they are about; whoever lets requests in, a server,
//! holds them against it. Programs with a connection to the database are not asked.

use async_trait::async_trait;
use windlass_core::Tenant;

use super::StoreError;

/// The most quotas.
pub const QUOTAS_MAX: usize = 1_000;

/// The largest number in a quota.
pub const QUOTA_MAX: u32 = 1_000_000_000;

/// The verbs of quotas.
#[async_trait]
pub trait QuotaStore: Send + Sync {
    /// Sets the quota of a tenant, or that of all that have none, in the place of the one that
    /// there is. One that makes no sense is a [`StoreError::Conflict`], as is more than
    /// [`QUOTAS_MAX`].
    async fn set_quota(&self, quota: Quota) -> Result<(), StoreError>;

    /// Deletes a quota; answers whether there was one.
    async fn clear_quota(&self, tenant: Option<Tenant>) -> Result<bool, StoreError>;

    /// All quotas: first that of all who have none of their own, then by tenant.
    async fn list_quotas(&self) -> Result<Vec<Quota>, StoreError>;

    /// How much a tenant has of what quotas count, each counted up to `at_most`: what is beyond is
    /// not looked at.
    async fn get_usage(&self, tenant: Tenant, at_most: u32) -> Result<Usage, StoreError>;
}

/// How much a tenant may ask for. What is not said is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Whose it is; of all tenants that have none of their own if none. One's own takes the place of
    /// that one whole.
    pub tenant: Option<Tenant>,
    /// The most starts of runs in a second.
    pub starts_per_second: Option<u32>,
    /// The most tasks that are ready and wait for a worker: beyond that, nothing is started.
    pub backlog_max: Option<u32>,
    /// The most bytes of an input or a signal.
    pub payload_bytes_max: Option<u32>,
    /// The most bytes of inputs and signals in a second.
    pub payload_bytes_per_second: Option<u32>,
    /// The most schedules.
    pub schedules_max: Option<u32>,
    /// The most tasks of a workflow.
    pub tasks_max: Option<u32>,
}

impl Quota {
    /// A quota of a tenant that limits nothing.
    pub fn of(tenant: Option<Tenant>) -> Self {
        Quota { tenant, ..Quota::default() }
    }

    /// What it limits, by name.
    pub fn limits(&self) -> [(&'static str, Option<u32>); 6] {
        [
            ("starts_per_second", self.starts_per_second),
            ("backlog_max", self.backlog_max),
            ("payload_bytes_max", self.payload_bytes_max),
            ("payload_bytes_per_second", self.payload_bytes_per_second),
            ("schedules_max", self.schedules_max),
            ("tasks_max", self.tasks_max),
        ]
    }

    /// Checks what the types do not. The error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        for (name, value) in self.limits() {
            if let Some(value) = value
                && !(1..=QUOTA_MAX).contains(&value)
            {
                return Err(format!("{name} {value} is not within 1 to {QUOTA_MAX}"));
            }
        }
        Ok(())
    }
}

/// How much a tenant has of what quotas count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its tasks that are ready.
    pub ready_tasks: u32,
    /// Its schedules.
    pub schedules: u32,
}

/// There are as many quotas as there may be.
pub(crate) fn too_many() -> StoreError {
    StoreError::Conflict(format!("there are {QUOTAS_MAX} quotas, which is the limit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_within_its_limits() {
        assert_eq!(Quota::default().check(), Ok(()));
        let quota = |value| Quota { schedules_max: Some(value), ..Quota::default() };
        assert!(quota(1).check().is_ok() && quota(QUOTA_MAX).check().is_ok());
        let error = quota(0).check().expect_err("nothing would be let in");
        assert_eq!(error, "schedules_max 0 is not within 1 to 1000000000");
        assert!(quota(QUOTA_MAX + 1).check().is_err());
    }
}
