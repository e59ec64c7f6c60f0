//! What durable functions remember.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::{Failure, FailureCode, PayloadLimit};
use windlass_core::{
    Call, Parking, SignalKey, StepChange, StepKind, StepName, StepRecord, StepResult, StepState,
    StepWrite, Wait,
};

use super::{ChildrenMax, FailureBody, Json, KeyText, NameText, Time, WaitMs, at_most};
use crate::problem::Problem;

/// What is known of one call of a durable function.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Step)]
pub(crate) struct StepBody {
    /// Which call it is, from 1.
    call: u32,
    /// What the function calls it.
    name: String,
    /// What it asks for.
    kind: KindWord,
    /// The key of the signal that it waits for, if it is not one to the run.
    key: Option<String>,
    /// Whether it has a result.
    is_done: bool,
    /// How many attempts have failed, of one without a result.
    failures: Option<u32>,
    /// When it goes on by itself.
    due: Option<Time>,
    /// It goes on when no more than so many of its children run.
    children_max: Option<u32>,
    /// The place of its result among those of the function.
    number: Option<u32>,
    /// The result.
    value: Option<Json>,
    /// Why it failed, or its last attempt did.
    failure: Option<FailureBody>,
}

/// What a call asks for.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = StepKind)]
pub(crate) enum KindWord {
    /// Run this, once.
    Step,
    /// Run this, once, and undo it if the run does not succeed.
    Undoable,
    /// Let this time pass.
    Sleep,
    /// What time is it?
    Time,
    /// Wait for a signal.
    Signal,
    /// Start a run, and wait until it has ended.
    Child,
    /// Has the code been changed here?
    Patch,
    /// Which input is it? What a function began afresh with.
    Input,
}

impl From<KindWord> for StepKind {
    fn from(word: KindWord) -> StepKind {
        match word {
            KindWord::Step => StepKind::Step,
            KindWord::Undoable => StepKind::Undoable,
            KindWord::Sleep => StepKind::Sleep,
            KindWord::Time => StepKind::Time,
            KindWord::Signal => StepKind::Signal,
            KindWord::Child => StepKind::Child,
            KindWord::Patch => StepKind::Patch,
            KindWord::Input => StepKind::Input,
        }
    }
}

impl From<StepKind> for KindWord {
    fn from(kind: StepKind) -> Self {
        match kind {
            StepKind::Step => KindWord::Step,
            StepKind::Undoable => KindWord::Undoable,
            StepKind::Sleep => KindWord::Sleep,
            StepKind::Time => KindWord::Time,
            StepKind::Signal => KindWord::Signal,
            StepKind::Child => KindWord::Child,
            StepKind::Patch => KindWord::Patch,
            StepKind::Input => KindWord::Input,
        }
    }
}

impl From<&StepRecord> for StepBody {
    fn from(step: &StepRecord) -> Self {
        let mut body = StepBody {
            call: step.call.0,
            name: step.name.to_string(),
            kind: step.kind.into(),
            key: step.key.as_ref().map(ToString::to_string),
            is_done: false,
            failures: None,
            due: step.due().map(Time),
            children_max: step.children_max(),
            number: step.number(),
            value: None,
            failure: None,
        };
        match &step.state {
            StepState::Open { failures, failure, .. } => {
                body.failures = Some(*failures);
                body.failure = failure.as_ref().map(FailureBody::from);
            }
            StepState::Done { result: StepResult::Value(value), .. } => {
                body.is_done = true;
                body.value = Some(Json::of(value));
            }
            StepState::Done { result: StepResult::Failed(failure), .. } => {
                body.is_done = true;
                body.failure = Some(failure.into());
            }
        }
        body
    }
}

/// A page of what a function knows, in the order of its calls.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepPage {
    /// The calls.
    pub(crate) steps: Vec<StepBody>,
    /// The cursor of the next page; none if this is the last.
    pub(crate) next: Option<String>,
}

/// Why something failed, as a worker says it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SaidFailure {
    /// What kind of failure it is; `error` if nothing is said. Retry policies branch on it. What is
    /// beyond 100 bytes is cut off.
    #[serde(default = "error_code")]
    #[schema(default = "error")]
    code: String,
    /// What a person reads. What is beyond 4,096 bytes is cut off.
    message: String,
    /// Whether another attempt could end otherwise; true if nothing is said.
    #[serde(default = "yes")]
    #[schema(default = true)]
    is_retryable: bool,
}

fn error_code() -> String {
    "error".to_owned()
}

fn yes() -> bool {
    true
}

impl From<SaidFailure> for Failure {
    fn from(said: SaidFailure) -> Failure {
        let failure = Failure::new(FailureCode::from(said.code), said.message);
        match said.is_retryable {
            true => failure,
            false => failure.permanent(),
        }
    }
}

/// Something to be recorded of one call.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteStep {
    /// Which call it is, from 1.
    #[schema(minimum = 1, maximum = 50_000)]
    call: u32,
    /// What the function calls it.
    #[schema(value_type = NameText)]
    name: StepName,
    /// What it asks for.
    kind: KindWord,
    /// The key of the signal that it waits for, if it is not one to the run.
    #[serde(default)]
    #[schema(value_type = Option<KeyText>)]
    key: Option<SignalKey>,
    /// What became of it.
    change: ChangeBody,
}

/// What became of a call.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = StepChange)]
pub(crate) enum ChangeBody {
    /// It waits.
    Open(OpenBody),
    /// It has a result.
    Done(DoneBody),
}

/// A call that waits.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OpenStep)]
pub(crate) struct OpenBody {
    /// How many attempts have failed.
    #[serde(default)]
    #[schema(maximum = 1_000_000)]
    failures: u32,
    /// Why the last one did.
    #[serde(default)]
    failure: Option<SaidFailure>,
    /// What it waits for.
    wait: WaitBody,
}

/// What a call waits for.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Wait)]
pub(crate) enum WaitBody {
    /// So many milliseconds from now.
    ForMs(WaitMs),
    /// Until this time.
    Until(Time),
    /// Until something happens.
    Forever,
    /// Until no more than so many of its children run.
    Children(ChildrenMax),
}

/// A call that has a result.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DoneStep)]
pub(crate) struct DoneBody {
    /// The place of its result among those of the function, in the order in which it learned of
    /// them.
    #[schema(maximum = 50_000)]
    number: u32,
    /// The result.
    result: ResultBody,
}

/// What a call came to.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = StepResult)]
pub(crate) enum ResultBody {
    /// A value.
    Value(Json),
    /// No attempt is left.
    Failed(SaidFailure),
}

impl From<&StepResult> for ResultBody {
    fn from(result: &StepResult) -> Self {
        match result {
            StepResult::Value(value) => ResultBody::Value(Json::of(value)),
            StepResult::Failed(failure) => {
                let Failure { code, message, is_retryable } = failure.clone();
                let code = code.word().to_owned();
                ResultBody::Failed(SaidFailure { code, message, is_retryable })
            }
        }
    }
}

/// The most failures of a call that are counted.
const FAILURES_MAX: u32 = 1_000_000;

fn within(field: &str, number: u32, max: u32) -> Result<(), Problem> {
    if number <= max {
        return Ok(());
    }
    Err(Problem::field(field, format_args!("{number} is over the limit of {max}")))
}

impl WriteStep {
    /// What is to be recorded.
    pub(crate) fn build(self, limit: PayloadLimit) -> Result<StepWrite, Problem> {
        let most = windlass_core::step::CALLS_MAX;
        if self.call == 0 || self.call > most {
            let why = format!("{} is not within 1 to {most}", self.call);
            return Err(Problem::field("call", why));
        }
        let change = match self.change {
            ChangeBody::Open(open) => {
                let wait = match open.wait {
                    WaitBody::ForMs(WaitMs(time)) => Wait::For(Duration::from_millis(time)),
                    WaitBody::Until(time) => Wait::Until(time.0),
                    WaitBody::Forever => Wait::Forever,
                    WaitBody::Children(ChildrenMax(most)) => {
                        within("children", most, i32::MAX.cast_unsigned())?;
                        Wait::Children(most)
                    }
                };
                within("failures", open.failures, FAILURES_MAX)?;
                let failure = open.failure.map(Failure::from);
                StepChange::Open { failures: open.failures, failure, wait }
            }
            ChangeBody::Done(done) => {
                let result = match done.result {
                    ResultBody::Value(value) => {
                        StepResult::Value(value.to_payload("result of a call", limit)?)
                    }
                    ResultBody::Failed(failure) => StepResult::Failed(failure.into()),
                };
                within("number", done.number, most)?;
                StepChange::Done { number: done.number, result }
            }
        };
        let (call, kind) = (Call(self.call), self.kind.into());
        Ok(StepWrite { call, name: self.name, kind, key: self.key, change })
    }
}

/// A function that waits and needs no worker until then.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Parking)]
pub(crate) struct ParkingBody {
    /// What is recorded together with it.
    #[serde(default)]
    #[schema(max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    steps: Vec<WriteStep>,
    /// The calls that were recorded earlier and still wait.
    #[serde(default)]
    #[schema(max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    waits: Vec<u32>,
    /// Whether it waits for anything but time.
    #[serde(default)]
    awaits: bool,
}

impl ParkingBody {
    /// What the function waits for.
    pub(crate) fn build(self, limit: PayloadLimit) -> Result<Parking, Problem> {
        for (field, count) in [("steps", self.steps.len()), ("waits", self.waits.len())] {
            if count > super::ITEMS_MAX {
                super::check_items(field, count)?;
            }
        }
        let steps = self.steps.into_iter().map(|step| step.build(limit));
        Ok(Parking {
            steps: steps.collect::<Result<_, _>>()?,
            waits: self.waits.into_iter().map(Call).collect(),
            awaits: self.awaits,
        })
    }
}
