//! Quotas.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::Tenant;
use windlass::store::Quota;

use super::NameText;

/// How much a tenant may ask for. What is not said is not limited.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Quota)]
pub(crate) struct QuotaBody {
    /// Whose it is; of all tenants that have none of their own if nothing is said.
    #[serde(default)]
    #[schema(value_type = Option<NameText>)]
    tenant: Option<Tenant>,
    /// The most starts of runs in a second.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    starts_per_second: Option<u32>,
    /// The most tasks that are ready and wait for a worker: beyond that, nothing is started.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    backlog_max: Option<u32>,
    /// The most bytes of an input or a signal.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    payload_bytes_max: Option<u32>,
    /// The most bytes of inputs and signals in a second.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    payload_bytes_per_second: Option<u32>,
    /// The most schedules.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    schedules_max: Option<u32>,
    /// The most tasks of a workflow.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    tasks_max: Option<u32>,
}

impl From<QuotaBody> for Quota {
    fn from(body: QuotaBody) -> Quota {
        Quota {
            tenant: body.tenant,
            starts_per_second: body.starts_per_second,
            backlog_max: body.backlog_max,
            payload_bytes_max: body.payload_bytes_max,
            payload_bytes_per_second: body.payload_bytes_per_second,
            schedules_max: body.schedules_max,
            tasks_max: body.tasks_max,
        }
    }
}

impl From<Quota> for QuotaBody {
    fn from(quota: Quota) -> Self {
        QuotaBody {
            tenant: quota.tenant,
            starts_per_second: quota.starts_per_second,
            backlog_max: quota.backlog_max,
            payload_bytes_max: quota.payload_bytes_max,
            payload_bytes_per_second: quota.payload_bytes_per_second,
            schedules_max: quota.schedules_max,
            tasks_max: quota.tasks_max,
        }
    }
}

/// All quotas.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuotaList {
    /// First that of all tenants that have none of their own, then by tenant.
    pub(crate) quotas: Vec<QuotaBody>,
}

/// Which quota to delete.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaQuery {
    /// Whose; that of all tenants that have none of their own if nothing is said.
    #[param(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub(crate) tenant: Option<Tenant>,
}
