//! How long runs are kept, and what is left of them, as messages.

use std::time::Duration;

use windlass_core::{RunState, Tenant, WorkflowName};

use super::{Wire, WireError, json, micros, name, name_some, parse, text, time, v1, version};
use crate::store::{ArchivedRun, RetentionRule};

impl Wire for RetentionRule {
    type Message = v1::RetentionRule;

    fn to_wire(&self) -> v1::RetentionRule {
        v1::RetentionRule {
            workflow: self.workflow.as_ref().map(ToString::to_string),
            state: self.state.to_wire(),
            keep_for_us: micros(self.keep_for),
            keep_key_for_us: micros(self.keep_key_for),
            archives: self.archives,
            with_dead_letters: self.with_dead_letters,
        }
    }

    fn from_wire(message: v1::RetentionRule) -> Result<Self, WireError> {
        Ok(RetentionRule {
            workflow: name_some("workflow", message.workflow, WorkflowName::new)?,
            state: RunState::from_wire(message.state)?,
            keep_for: Duration::from_micros(message.keep_for_us),
            keep_key_for: Duration::from_micros(message.keep_key_for_us),
            archives: message.archives,
            with_dead_letters: message.with_dead_letters,
        })
    }
}

impl Wire for ArchivedRun {
    type Message = v1::ArchivedRun;

    fn to_wire(&self) -> v1::ArchivedRun {
        v1::ArchivedRun {
            id: self.id.to_string(),
            workflow: self.workflow.to_string(),
            version: self.version.get(),
            tenant: self.tenant.to_string(),
            state: self.state.to_wire(),
            created_at_us: self.created_at.as_micros(),
            ended_at_us: self.ended_at.as_micros(),
            archived_at_us: self.archived_at.as_micros(),
            body: text(&self.body),
        }
    }

    fn from_wire(message: v1::ArchivedRun) -> Result<Self, WireError> {
        Ok(ArchivedRun {
            id: parse("id", &message.id)?,
            workflow: name("workflow", WorkflowName::new(&message.workflow))?,
            version: version(message.version)?,
            tenant: name("tenant", Tenant::new(&message.tenant))?,
            state: RunState::from_wire(message.state)?,
            created_at: time(message.created_at_us),
            ended_at: time(message.ended_at_us),
            archived_at: time(message.archived_at_us),
            body: json("body", message.body)?,
        })
    }
}
