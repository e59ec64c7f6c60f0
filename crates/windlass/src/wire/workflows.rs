//! Lists of workflows as messages.

use windlass_core::WorkflowName;

use super::{Wire, WireError, name, read, read_all, read_some, time, v1, write_all};
use crate::store::{HandlerKey, WorkflowCursor, WorkflowFilter, WorkflowPage, WorkflowRecord};

impl Wire for WorkflowCursor {
    type Message = v1::WorkflowVersion;

    fn to_wire(&self) -> v1::WorkflowVersion {
        HandlerKey { workflow: self.name.clone(), version: self.version }.to_wire()
    }

    fn from_wire(message: v1::WorkflowVersion) -> Result<Self, WireError> {
        let HandlerKey { workflow, version } = HandlerKey::from_wire(message)?;
        Ok(WorkflowCursor { name: workflow, version })
    }
}

impl Wire for WorkflowFilter {
    type Message = v1::ListWorkflowsRequest;

    fn to_wire(&self) -> v1::ListWorkflowsRequest {
        v1::ListWorkflowsRequest {
            name: self.name.as_ref().map(|name| name.as_str().to_owned()),
            after: self.after.as_ref().map(Wire::to_wire),
            limit: u32::try_from(self.limit).unwrap_or(u32::MAX),
        }
    }

    fn from_wire(message: v1::ListWorkflowsRequest) -> Result<Self, WireError> {
        Ok(WorkflowFilter {
            name: name("name", message.name.map(WorkflowName::new).transpose())?,
            after: read_some("after", message.after)?,
            limit: message.limit as usize,
        })
    }
}

impl Wire for WorkflowRecord {
    type Message = v1::WorkflowRecord;

    fn to_wire(&self) -> v1::WorkflowRecord {
        v1::WorkflowRecord {
            definition: Some(self.definition.to_wire()),
            registered_at_us: self.registered_at.as_micros(),
        }
    }

    fn from_wire(message: v1::WorkflowRecord) -> Result<Self, WireError> {
        Ok(WorkflowRecord {
            definition: read("definition", message.definition)?,
            registered_at: time(message.registered_at_us),
        })
    }
}

impl Wire for WorkflowPage {
    type Message = v1::WorkflowPage;

    fn to_wire(&self) -> v1::WorkflowPage {
        let next = self.next.as_ref().map(Wire::to_wire);
        v1::WorkflowPage { workflows: write_all(&self.workflows), next }
    }

    fn from_wire(message: v1::WorkflowPage) -> Result<Self, WireError> {
        Ok(WorkflowPage {
            workflows: read_all("workflows", message.workflows)?,
            next: read_some("next", message.next)?,
        })
    }
}
