//! Quotas as messages.

use windlass_core::Tenant;

use super::{Wire, WireError, name_some, v1};
use crate::store::{Quota, Usage};

impl Wire for Quota {
    type Message = v1::Quota;

    fn to_wire(&self) -> v1::Quota {
        v1::Quota {
            tenant: self.tenant.as_ref().map(ToString::to_string),
            starts_per_second: self.starts_per_second,
            backlog_max: self.backlog_max,
            payload_bytes_max: self.payload_bytes_max,
            payload_bytes_per_second: self.payload_bytes_per_second,
            schedules_max: self.schedules_max,
            tasks_max: self.tasks_max,
        }
    }

    fn from_wire(message: v1::Quota) -> Result<Self, WireError> {
        Ok(Quota {
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            starts_per_second: message.starts_per_second,
            backlog_max: message.backlog_max,
            payload_bytes_max: message.payload_bytes_max,
            payload_bytes_per_second: message.payload_bytes_per_second,
            schedules_max: message.schedules_max,
            tasks_max: message.tasks_max,
        })
    }
}

impl Wire for Usage {
    type Message = v1::GetUsageReply;

    fn to_wire(&self) -> v1::GetUsageReply {
        v1::GetUsageReply { ready_tasks: self.ready_tasks, schedules: self.schedules }
    }

    fn from_wire(message: v1::GetUsageReply) -> Result<Self, WireError> {
        Ok(Usage { ready_tasks: message.ready_tasks, schedules: message.schedules })
    }
}
