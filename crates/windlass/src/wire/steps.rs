//! What durable functions remember, as messages.

use std::time::Duration;

use windlass_core::step::{Parking, StepChange, StepKind, StepResult, StepState, StepWrite, Wait};
use windlass_core::{Call, SignalKey, StepName, StepRecord};

use super::{
    Wire, WireError, json, micros, name, read, read_all, read_some, required, small, text, time,
    unknown, v1, write_all,
};

impl Wire for StepKind {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let kind = match self {
            StepKind::Step => v1::StepKind::Step,
            StepKind::Undoable => v1::StepKind::Undoable,
            StepKind::Sleep => v1::StepKind::Sleep,
            StepKind::Time => v1::StepKind::Time,
            StepKind::Signal => v1::StepKind::Signal,
            StepKind::Child => v1::StepKind::Child,
            StepKind::Patch => v1::StepKind::Patch,
            StepKind::Input => v1::StepKind::Input,
        };
        kind.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::StepKind::try_from(number) {
            Ok(v1::StepKind::Step) => Ok(StepKind::Step),
            Ok(v1::StepKind::Undoable) => Ok(StepKind::Undoable),
            Ok(v1::StepKind::Sleep) => Ok(StepKind::Sleep),
            Ok(v1::StepKind::Time) => Ok(StepKind::Time),
            Ok(v1::StepKind::Signal) => Ok(StepKind::Signal),
            Ok(v1::StepKind::Child) => Ok(StepKind::Child),
            Ok(v1::StepKind::Patch) => Ok(StepKind::Patch),
            Ok(v1::StepKind::Input) => Ok(StepKind::Input),
            Ok(v1::StepKind::Unspecified) | Err(_) => Err(unknown("kind", number)),
        }
    }
}

impl Wire for StepResult {
    type Message = v1::StepResult;

    fn to_wire(&self) -> v1::StepResult {
        let result = match self {
            StepResult::Value(value) => v1::step_result::Result::Value(text(value)),
            StepResult::Failed(failure) => v1::step_result::Result::Failed(failure.to_wire()),
        };
        v1::StepResult { result: Some(result) }
    }

    fn from_wire(message: v1::StepResult) -> Result<Self, WireError> {
        match required("result", message.result)? {
            v1::step_result::Result::Value(value) => Ok(StepResult::Value(json("value", value)?)),
            v1::step_result::Result::Failed(failure) => {
                read("failed", Some(failure)).map(StepResult::Failed)
            }
        }
    }
}

fn read_done(done: v1::StepDone) -> Result<(u32, StepResult), WireError> {
    Ok((small("number", done.number)?, read("result", done.result)?))
}

fn key(text: Option<String>) -> Result<Option<SignalKey>, WireError> {
    name("key", text.map(SignalKey::new).transpose())
}

impl Wire for StepRecord {
    type Message = v1::Step;

    fn to_wire(&self) -> v1::Step {
        let state = match &self.state {
            StepState::Open { failures, failure, due, children_max } => {
                v1::step::State::Open(v1::StepOpen {
                    failures: *failures,
                    failure: failure.as_ref().map(Wire::to_wire),
                    due_us: due.map(|due| due.as_micros()),
                    children_max: *children_max,
                })
            }
            StepState::Done { number, result } => v1::step::State::Done(v1::StepDone {
                number: *number,
                result: Some(result.to_wire()),
            }),
        };
        v1::Step {
            call: self.call.0,
            name: self.name.as_str().to_owned(),
            kind: self.kind.to_wire(),
            key: self.key.as_ref().map(|key| key.as_str().to_owned()),
            state: Some(state),
        }
    }

    fn from_wire(message: v1::Step) -> Result<Self, WireError> {
        let state = match required("state", message.state)? {
            v1::step::State::Open(open) => StepState::Open {
                failures: open.failures,
                failure: read_some("open.failure", open.failure)?,
                due: open.due_us.map(time),
                children_max: open.children_max,
            },
            v1::step::State::Done(done) => {
                let (number, result) = read_done(done).map_err(|error| error.within("done"))?;
                StepState::Done { number, result }
            }
        };
        Ok(StepRecord {
            call: Call(message.call),
            name: name("name", StepName::new(&message.name))?,
            kind: StepKind::from_wire(message.kind)?,
            key: key(message.key)?,
            state,
        })
    }
}

impl Wire for StepWrite {
    type Message = v1::StepWrite;

    fn to_wire(&self) -> v1::StepWrite {
        let change = match &self.change {
            StepChange::Open { failures, failure, wait } => {
                let wait = match wait {
                    Wait::For(time) => v1::step_waits::Wait::ForUs(micros(*time)),
                    Wait::Until(time) => v1::step_waits::Wait::UntilUs(time.as_micros()),
                    Wait::Forever => v1::step_waits::Wait::Forever(v1::Done {}),
                    Wait::Children(most) => v1::step_waits::Wait::Children(*most),
                };
                v1::step_write::Change::Waits(v1::StepWaits {
                    failures: *failures,
                    failure: failure.as_ref().map(Wire::to_wire),
                    wait: Some(wait),
                })
            }
            StepChange::Done { number, result } => v1::step_write::Change::Done(v1::StepDone {
                number: *number,
                result: Some(result.to_wire()),
            }),
        };
        v1::StepWrite {
            call: self.call.0,
            name: self.name.as_str().to_owned(),
            kind: self.kind.to_wire(),
            key: self.key.as_ref().map(|key| key.as_str().to_owned()),
            change: Some(change),
        }
    }

    fn from_wire(message: v1::StepWrite) -> Result<Self, WireError> {
        let change = match required("change", message.change)? {
            v1::step_write::Change::Waits(waits) => StepChange::Open {
                failures: small("waits.failures", waits.failures)?,
                failure: read_some("waits.failure", waits.failure)?,
                wait: match required("waits.wait", waits.wait)? {
                    v1::step_waits::Wait::ForUs(us) => Wait::For(Duration::from_micros(us)),
                    v1::step_waits::Wait::UntilUs(us) => Wait::Until(time(us)),
                    v1::step_waits::Wait::Forever(v1::Done {}) => Wait::Forever,
                    v1::step_waits::Wait::Children(most) => {
                        Wait::Children(small("waits.children", most)?)
                    }
                },
            },
            v1::step_write::Change::Done(done) => {
                let (number, result) = read_done(done).map_err(|error| error.within("done"))?;
                StepChange::Done { number, result }
            }
        };
        Ok(StepWrite {
            call: Call(small("call", message.call)?),
            name: name("name", StepName::new(&message.name))?,
            kind: StepKind::from_wire(message.kind)?,
            key: key(message.key)?,
            change,
        })
    }
}

impl Wire for Parking {
    type Message = v1::Park;

    fn to_wire(&self) -> v1::Park {
        v1::Park {
            steps: write_all(&self.steps),
            waits: self.waits.iter().map(|call| call.0).collect(),
            awaits: self.awaits,
        }
    }

    fn from_wire(message: v1::Park) -> Result<Self, WireError> {
        Ok(Parking {
            steps: read_all("steps", message.steps)?,
            waits: message.waits.into_iter().map(Call).collect(),
            awaits: message.awaits,
        })
    }
}
