//! Duties of programs as messages.

use std::time::Duration;

use windlass_core::{DutyName, Term};

use super::{
    Wire, WireError, micros, name, parse, read, read_all, read_some, required, time, v1, write_all,
};
use crate::store::{
    DutyClaim, DutyDeclaration, DutyEnd, DutyHolder, DutyMandate, DutyOutcome, DutyRecord,
    DutyStanding,
};

impl Wire for DutyDeclaration {
    type Message = v1::DutyDeclaration;

    fn to_wire(&self) -> v1::DutyDeclaration {
        v1::DutyDeclaration {
            name: self.name.to_string(),
            every_us: micros(self.every),
            is_new: self.is_new,
        }
    }

    fn from_wire(message: v1::DutyDeclaration) -> Result<Self, WireError> {
        Ok(DutyDeclaration {
            name: name("name", DutyName::new(&message.name))?,
            every: Duration::from_micros(message.every_us),
            is_new: message.is_new,
        })
    }
}

impl Wire for DutyClaim {
    type Message = v1::ClaimDutiesRequest;

    fn to_wire(&self) -> v1::ClaimDutiesRequest {
        v1::ClaimDutiesRequest {
            candidate: self.candidate.to_string(),
            process: self.process.clone(),
            ttl_us: micros(self.ttl),
            duties: write_all(&self.duties),
        }
    }

    fn from_wire(message: v1::ClaimDutiesRequest) -> Result<Self, WireError> {
        Ok(DutyClaim {
            candidate: parse("candidate", &message.candidate)?,
            process: message.process,
            ttl: Duration::from_micros(message.ttl_us),
            duties: read_all("duties", message.duties)?,
        })
    }
}

impl Wire for DutyStanding {
    type Message = v1::ClaimDutiesReply;

    fn to_wire(&self) -> v1::ClaimDutiesReply {
        v1::ClaimDutiesReply { at_us: self.at.as_micros(), duties: write_all(&self.duties) }
    }

    fn from_wire(message: v1::ClaimDutiesReply) -> Result<Self, WireError> {
        let duties = read_all("duties", message.duties)?;
        Ok(DutyStanding { at: time(message.at_us), duties })
    }
}

impl Wire for DutyHolder {
    type Message = v1::DutyHolder;

    fn to_wire(&self) -> v1::DutyHolder {
        v1::DutyHolder {
            candidate: self.candidate.to_string(),
            process: self.process.clone(),
            since_us: self.since.as_micros(),
            until_us: self.until.map(|until| until.as_micros()),
        }
    }

    fn from_wire(message: v1::DutyHolder) -> Result<Self, WireError> {
        Ok(DutyHolder {
            candidate: parse("candidate", &message.candidate)?,
            process: message.process,
            since: time(message.since_us),
            until: message.until_us.map(time),
        })
    }
}

impl Wire for DutyRecord {
    type Message = v1::DutyRecord;

    fn to_wire(&self) -> v1::DutyRecord {
        let last_run = |(at, took): &(windlass_core::Timestamp, Duration)| v1::DutyRun {
            at_us: at.as_micros(),
            took_us: micros(*took),
        };
        v1::DutyRecord {
            name: self.name.to_string(),
            every_us: micros(self.every),
            next_at_us: self.next_at.as_micros(),
            term: self.term.0,
            holder: self.holder.as_ref().map(Wire::to_wire),
            runs: self.runs,
            errors: self.errors,
            last_run: self.last_run.as_ref().map(last_run),
            last_error: self.last_error.clone(),
        }
    }

    fn from_wire(message: v1::DutyRecord) -> Result<Self, WireError> {
        let last_run = |run: v1::DutyRun| (time(run.at_us), Duration::from_micros(run.took_us));
        Ok(DutyRecord {
            name: name("name", DutyName::new(&message.name))?,
            every: Duration::from_micros(message.every_us),
            next_at: time(message.next_at_us),
            term: Term(message.term),
            holder: read_some("holder", message.holder)?,
            runs: message.runs,
            errors: message.errors,
            last_run: message.last_run.map(last_run),
            last_error: message.last_error,
        })
    }
}

impl Wire for DutyMandate {
    type Message = v1::DutyMandate;

    fn to_wire(&self) -> v1::DutyMandate {
        v1::DutyMandate {
            name: self.name.to_string(),
            candidate: self.candidate.to_string(),
            term: self.term.0,
        }
    }

    fn from_wire(message: v1::DutyMandate) -> Result<Self, WireError> {
        Ok(DutyMandate {
            name: name("name", DutyName::new(&message.name))?,
            candidate: parse("candidate", &message.candidate)?,
            term: Term(message.term),
        })
    }
}

impl Wire for DutyEnd {
    type Message = v1::EndDutyRequest;

    fn to_wire(&self) -> v1::EndDutyRequest {
        let outcome = match &self.outcome {
            DutyOutcome::Succeeded => v1::end_duty_request::Outcome::Succeeded(v1::Done {}),
            DutyOutcome::Failed(why) => v1::end_duty_request::Outcome::Failed(why.clone()),
            DutyOutcome::GivenUp => v1::end_duty_request::Outcome::GivenUp(v1::Done {}),
        };
        v1::EndDutyRequest {
            mandate: Some(self.mandate.to_wire()),
            took_us: micros(self.took),
            outcome: Some(outcome),
        }
    }

    fn from_wire(message: v1::EndDutyRequest) -> Result<Self, WireError> {
        Ok(DutyEnd {
            mandate: read("mandate", message.mandate)?,
            took: Duration::from_micros(message.took_us),
            outcome: match required("outcome", message.outcome)? {
                v1::end_duty_request::Outcome::Succeeded(v1::Done {}) => DutyOutcome::Succeeded,
                v1::end_duty_request::Outcome::Failed(why) => DutyOutcome::Failed(why),
                v1::end_duty_request::Outcome::GivenUp(v1::Done {}) => DutyOutcome::GivenUp,
            },
        })
    }
}
