//! Schedules as messages.

use std::time::Duration;

use windlass_core::schedule::{Cadence, Missed, Timing};
use windlass_core::{Overlap, ScheduleId, ScheduleName, ScheduleOwner, Tenant, WorkflowName};

use super::{
    Wire, WireError, count, json_or_null, limit, micros, name, name_some, parse, priority, read,
    read_all, read_some, required, tenant, text, time, unknown, v1, version, write_all,
};
use crate::store::{
    Backfilled, Fire, FireBy, FireResult, NewSchedule, ScheduleFilter, ScheduleKey, SchedulePage,
    ScheduleRecord, ScheduleState, UnreadableSchedule,
};

impl Wire for ScheduleKey {
    type Message = v1::ScheduleKey;

    fn to_wire(&self) -> v1::ScheduleKey {
        v1::ScheduleKey { tenant: self.tenant.to_string(), name: self.name.to_string() }
    }

    fn from_wire(message: v1::ScheduleKey) -> Result<Self, WireError> {
        let schedule = name("name", ScheduleName::new(&message.name))?;
        Ok(ScheduleKey { tenant: tenant(&message.tenant)?, name: schedule })
    }
}

impl Wire for Overlap {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let overlap = match self {
            Overlap::Allow => v1::Overlap::Allow,
            Overlap::Skip => v1::Overlap::Skip,
            Overlap::Queue => v1::Overlap::Queue,
            Overlap::CancelRunning => v1::Overlap::CancelRunning,
        };
        overlap.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::Overlap::try_from(number) {
            Ok(v1::Overlap::Allow) => Ok(Overlap::Allow),
            Ok(v1::Overlap::Skip) => Ok(Overlap::Skip),
            Ok(v1::Overlap::Queue) => Ok(Overlap::Queue),
            Ok(v1::Overlap::CancelRunning) => Ok(Overlap::CancelRunning),
            Err(_) => Err(unknown("overlap", number)),
        }
    }
}

impl Wire for Timing {
    type Message = v1::Timing;

    fn to_wire(&self) -> v1::Timing {
        let cadence = match &self.cadence {
            Cadence::Cron { cron, zone } => v1::timing::Cadence::Cron(v1::CronCadence {
                expression: cron.as_str().to_owned(),
                zone: zone.name().to_owned(),
            }),
            Cadence::Every { interval, anchor } => v1::timing::Cadence::Every(v1::EveryCadence {
                interval_us: micros(*interval),
                anchor_us: anchor.as_micros(),
            }),
            Cadence::Once(at) => v1::timing::Cadence::OnceAtUs(at.as_micros()),
        };
        let missed = match self.missed {
            Missed::Skip => v1::timing::Missed::MissedSkip(v1::Done {}),
            Missed::Once => v1::timing::Missed::MissedOnce(v1::Done {}),
            Missed::All(most) => v1::timing::Missed::MissedAll(most),
        };
        v1::Timing {
            cadence: Some(cadence),
            starts_at_us: self.starts_at.map(|at| at.as_micros()),
            ends_at_us: self.ends_at.map(|at| at.as_micros()),
            jitter_us: micros(self.jitter),
            grace_us: Some(micros(self.grace)),
            missed: Some(missed),
            overlap: self.overlap.to_wire(),
        }
    }

    fn from_wire(message: v1::Timing) -> Result<Self, WireError> {
        let timing = Timing::new(read_cadence(required("cadence", message.cadence)?)?);
        Ok(Timing {
            starts_at: message.starts_at_us.map(time),
            ends_at: message.ends_at_us.map(time),
            jitter: Duration::from_micros(message.jitter_us),
            grace: message.grace_us.map_or(timing.grace, Duration::from_micros),
            missed: match message.missed {
                None | Some(v1::timing::Missed::MissedSkip(v1::Done {})) => Missed::Skip,
                Some(v1::timing::Missed::MissedOnce(v1::Done {})) => Missed::Once,
                Some(v1::timing::Missed::MissedAll(most)) => Missed::All(most),
            },
            overlap: Overlap::from_wire(message.overlap)?,
            ..timing
        })
    }
}

fn read_cadence(cadence: v1::timing::Cadence) -> Result<Cadence, WireError> {
    match cadence {
        v1::timing::Cadence::Cron(v1::CronCadence { expression, zone }) => {
            let zone = if zone.is_empty() { "UTC" } else { &zone };
            name("cron", Cadence::cron(&expression, zone))
        }
        v1::timing::Cadence::Every(v1::EveryCadence { interval_us, anchor_us }) => {
            let interval = Duration::from_micros(interval_us);
            name("every", Cadence::every_from(interval, time(anchor_us)))
        }
        v1::timing::Cadence::OnceAtUs(at) => Ok(Cadence::Once(time(at))),
    }
}

impl Wire for NewSchedule {
    type Message = v1::Schedule;

    fn to_wire(&self) -> v1::Schedule {
        v1::Schedule {
            key: Some(self.key.to_wire()),
            workflow: self.workflow.to_string(),
            version: self.version.get(),
            input: text(&self.input),
            priority: self.priority.get().into(),
            timing: Some(self.timing.to_wire()),
            owner: self.owner.as_ref().map(ToString::to_string),
        }
    }

    fn from_wire(message: v1::Schedule) -> Result<Self, WireError> {
        Ok(NewSchedule {
            key: read("key", message.key)?,
            workflow: name("workflow", WorkflowName::new(&message.workflow))?,
            version: version(message.version)?,
            input: json_or_null("input", message.input)?,
            priority: priority(message.priority)?,
            timing: read("timing", message.timing)?,
            owner: name_some("owner", message.owner, ScheduleOwner::new)?,
        })
    }
}

impl Wire for ScheduleState {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let state = match self {
            ScheduleState::Active => v1::ScheduleState::Active,
            ScheduleState::Paused => v1::ScheduleState::Paused,
            ScheduleState::Disabled => v1::ScheduleState::Disabled,
        };
        state.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::ScheduleState::try_from(number) {
            Ok(v1::ScheduleState::Active) => Ok(ScheduleState::Active),
            Ok(v1::ScheduleState::Paused) => Ok(ScheduleState::Paused),
            Ok(v1::ScheduleState::Disabled) => Ok(ScheduleState::Disabled),
            Ok(v1::ScheduleState::Unspecified) | Err(_) => Err(unknown("state", number)),
        }
    }
}

impl Wire for ScheduleRecord {
    type Message = v1::ScheduleRecord;

    fn to_wire(&self) -> v1::ScheduleRecord {
        v1::ScheduleRecord {
            id: self.id.0,
            schedule: Some(self.schedule.to_wire()),
            state: self.state.to_wire(),
            next_at_us: self.next_at.map(|at| at.as_micros()),
            last_at_us: self.last_at.map(|at| at.as_micros()),
            queued_at_us: self.queued_at.map(|at| at.as_micros()),
            created_at_us: self.created_at.as_micros(),
        }
    }

    fn from_wire(message: v1::ScheduleRecord) -> Result<Self, WireError> {
        Ok(ScheduleRecord {
            id: ScheduleId(message.id),
            schedule: read("schedule", message.schedule)?,
            state: ScheduleState::from_wire(message.state)?,
            next_at: message.next_at_us.map(time),
            last_at: message.last_at_us.map(time),
            queued_at: message.queued_at_us.map(time),
            created_at: time(message.created_at_us),
        })
    }
}

impl Wire for ScheduleFilter {
    type Message = v1::ListSchedulesRequest;

    fn to_wire(&self) -> v1::ListSchedulesRequest {
        v1::ListSchedulesRequest {
            tenant: self.tenant.as_ref().map(ToString::to_string),
            after: self.after.as_ref().map(Wire::to_wire),
            limit: limit(self.limit),
        }
    }

    fn from_wire(message: v1::ListSchedulesRequest) -> Result<Self, WireError> {
        Ok(ScheduleFilter {
            tenant: name_some("tenant", message.tenant, Tenant::new)?,
            after: read_some("after", message.after)?,
            limit: message.limit as usize,
        })
    }
}

impl Wire for UnreadableSchedule {
    type Message = v1::UnreadableSchedule;

    fn to_wire(&self) -> v1::UnreadableSchedule {
        v1::UnreadableSchedule {
            tenant: self.tenant.clone(),
            name: self.name.clone(),
            problem: self.problem.clone(),
        }
    }

    fn from_wire(message: v1::UnreadableSchedule) -> Result<Self, WireError> {
        let v1::UnreadableSchedule { tenant, name, problem } = message;
        Ok(UnreadableSchedule { tenant, name, problem })
    }
}

impl Wire for SchedulePage {
    type Message = v1::SchedulePage;

    fn to_wire(&self) -> v1::SchedulePage {
        v1::SchedulePage {
            schedules: write_all(&self.schedules),
            unreadable: write_all(&self.unreadable),
            next: self.next.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: v1::SchedulePage) -> Result<Self, WireError> {
        Ok(SchedulePage {
            schedules: read_all("schedules", message.schedules)?,
            unreadable: read_all("unreadable", message.unreadable)?,
            next: read_some("next", message.next)?,
        })
    }
}

impl Wire for Backfilled {
    type Message = v1::BackfillScheduleReply;

    fn to_wire(&self) -> v1::BackfillScheduleReply {
        let (started, existing) = (self.started as u64, self.existing as u64);
        v1::BackfillScheduleReply { started, existing }
    }

    fn from_wire(message: v1::BackfillScheduleReply) -> Result<Self, WireError> {
        let (started, existing) = (count(message.started), count(message.existing));
        Ok(Backfilled { started, existing })
    }
}

impl Wire for FireBy {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let by = match self {
            FireBy::Time => v1::FireBy::Time,
            FireBy::Backfill => v1::FireBy::Backfill,
            FireBy::Trigger => v1::FireBy::Trigger,
        };
        by.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::FireBy::try_from(number) {
            Ok(v1::FireBy::Time) => Ok(FireBy::Time),
            Ok(v1::FireBy::Backfill) => Ok(FireBy::Backfill),
            Ok(v1::FireBy::Trigger) => Ok(FireBy::Trigger),
            Ok(v1::FireBy::Unspecified) | Err(_) => Err(unknown("by", number)),
        }
    }
}

impl Wire for Fire {
    type Message = v1::Fire;

    fn to_wire(&self) -> v1::Fire {
        let result = match &self.result {
            FireResult::Started(run) => v1::fire::Result::Started(run.to_string()),
            FireResult::Missed { first, count } => v1::fire::Result::Missed(v1::FireMissed {
                first_us: first.as_micros(),
                count: *count as u64,
            }),
            FireResult::Overlapped => v1::fire::Result::Overlapped(v1::Done {}),
            FireResult::Queued => v1::fire::Result::Queued(v1::Done {}),
            FireResult::Refused(reason) => v1::fire::Result::Refused(reason.clone()),
        };
        v1::Fire {
            nominal_us: self.nominal.as_micros(),
            by: self.by.to_wire(),
            at_us: self.at.as_micros(),
            result: Some(result),
        }
    }

    fn from_wire(message: v1::Fire) -> Result<Self, WireError> {
        let result = match required("result", message.result)? {
            v1::fire::Result::Started(run) => FireResult::Started(parse("started", &run)?),
            v1::fire::Result::Missed(missed) => {
                FireResult::Missed { first: time(missed.first_us), count: count(missed.count) }
            }
            v1::fire::Result::Overlapped(v1::Done {}) => FireResult::Overlapped,
            v1::fire::Result::Queued(v1::Done {}) => FireResult::Queued,
            v1::fire::Result::Refused(reason) => FireResult::Refused(reason),
        };
        Ok(Fire {
            nominal: time(message.nominal_us),
            by: FireBy::from_wire(message.by)?,
            result,
            at: time(message.at_us),
        })
    }
}
