//! The operators' log as messages.

use windlass_core::{Operator, Tenant};

use super::{
    Wire, WireError, json_some, limit, name, name_some, parse, parse_all, parse_some, read_all,
    text, time, unknown, v1, write_all,
};
use crate::store::{Action, LogEntry, LogFilter, LogPage, NewLogEntry};

impl Wire for Action {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let action = match self {
            Action::Redrive => v1::Action::Redrive,
            Action::Discard => v1::Action::Discard,
            Action::RetryRun => v1::Action::RetryRun,
            Action::CancelRun => v1::Action::CancelRun,
            Action::UndoRun => v1::Action::UndoRun,
            Action::SetWeight => v1::Action::SetWeight,
            Action::SetRetention => v1::Action::SetRetention,
            Action::ClearRetention => v1::Action::ClearRetention,
            Action::PutSchedule => v1::Action::PutSchedule,
            Action::PauseSchedule => v1::Action::PauseSchedule,
            Action::ResumeSchedule => v1::Action::ResumeSchedule,
            Action::TriggerSchedule => v1::Action::TriggerSchedule,
            Action::BackfillSchedule => v1::Action::BackfillSchedule,
            Action::DeleteSchedule => v1::Action::DeleteSchedule,
            Action::SetQuota => v1::Action::SetQuota,
            Action::ClearQuota => v1::Action::ClearQuota,
        };
        action.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::Action::try_from(number) {
            Ok(v1::Action::Redrive) => Ok(Action::Redrive),
            Ok(v1::Action::Discard) => Ok(Action::Discard),
            Ok(v1::Action::RetryRun) => Ok(Action::RetryRun),
            Ok(v1::Action::CancelRun) => Ok(Action::CancelRun),
            Ok(v1::Action::UndoRun) => Ok(Action::UndoRun),
            Ok(v1::Action::SetWeight) => Ok(Action::SetWeight),
            Ok(v1::Action::SetRetention) => Ok(Action::SetRetention),
            Ok(v1::Action::ClearRetention) => Ok(Action::ClearRetention),
            Ok(v1::Action::PutSchedule) => Ok(Action::PutSchedule),
            Ok(v1::Action::PauseSchedule) => Ok(Action::PauseSchedule),
            Ok(v1::Action::ResumeSchedule) => Ok(Action::ResumeSchedule),
            Ok(v1::Action::TriggerSchedule) => Ok(Action::TriggerSchedule),
            Ok(v1::Action::BackfillSchedule) => Ok(Action::BackfillSchedule),
            Ok(v1::Action::DeleteSchedule) => Ok(Action::DeleteSchedule),
            Ok(v1::Action::SetQuota) => Ok(Action::SetQuota),
            Ok(v1::Action::ClearQuota) => Ok(Action::ClearQuota),
            Ok(v1::Action::Unspecified) | Err(_) => Err(unknown("action", number)),
        }
    }
}

impl Wire for NewLogEntry {
    type Message = v1::NewLogEntry;

    fn to_wire(&self) -> v1::NewLogEntry {
        v1::NewLogEntry {
            id: self.id.to_string(),
            by: self.by.to_string(),
            action: self.action.to_wire(),
            tenant: self.tenant.as_ref().map(ToString::to_string),
            run: self.run.map(|run| run.to_string()),
            detail: self.detail.as_ref().map(text),
        }
    }

    fn from_wire(message: v1::NewLogEntry) -> Result<Self, WireError> {
        Ok(NewLogEntry {
            id: parse("id", &message.id)?,
            by: name("by", Operator::new(&message.by))?,
            action: Action::from_wire(message.action)?,
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            run: parse_some("run", message.run)?,
            detail: json_some("detail", message.detail)?,
        })
    }
}

impl Wire for LogEntry {
    type Message = v1::LogEntry;

    fn to_wire(&self) -> v1::LogEntry {
        v1::LogEntry {
            number: self.number,
            id: self.id.to_string(),
            at_us: self.at.as_micros(),
            by: self.by.to_string(),
            action: self.action.to_wire(),
            tenant: self.tenant.as_ref().map(ToString::to_string),
            runs: self.runs.iter().map(ToString::to_string).collect(),
            detail: self.detail.as_ref().map(text),
        }
    }

    fn from_wire(message: v1::LogEntry) -> Result<Self, WireError> {
        Ok(LogEntry {
            number: message.number,
            id: parse("id", &message.id)?,
            at: time(message.at_us),
            by: name("by", Operator::new(&message.by))?,
            action: Action::from_wire(message.action)?,
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            runs: parse_all("runs", &message.runs)?,
            detail: json_some("detail", message.detail)?,
        })
    }
}

impl Wire for LogFilter {
    type Message = v1::ListLogRequest;

    fn to_wire(&self) -> v1::ListLogRequest {
        v1::ListLogRequest {
            run: self.run.map(|run| run.to_string()),
            action: self.action.map_or(v1::Action::Unspecified.into(), |action| action.to_wire()),
            by: self.by.as_ref().map(ToString::to_string),
            before: self.before,
            limit: limit(self.limit),
        }
    }

    fn from_wire(message: v1::ListLogRequest) -> Result<Self, WireError> {
        let action = if message.action == i32::from(v1::Action::Unspecified) {
            None
        } else {
            Some(Action::from_wire(message.action)?)
        };
        Ok(LogFilter {
            run: parse_some("run", message.run)?,
            action,
            by: name_some("by", message.by, Operator::new)?,
            before: message.before,
            limit: message.limit as usize,
        })
    }
}

impl Wire for LogPage {
    type Message = v1::LogPage;

    fn to_wire(&self) -> v1::LogPage {
        v1::LogPage { entries: write_all(&self.entries), next: self.next }
    }

    fn from_wire(message: v1::LogPage) -> Result<Self, WireError> {
        Ok(LogPage { entries: read_all("entries", message.entries)?, next: message.next })
    }
}
