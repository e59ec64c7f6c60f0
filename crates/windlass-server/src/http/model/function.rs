//! What durable functions ask for besides steps and sleeps: signals, children, and what there is
//! to undo.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::store::{Born, Child, Claimed, Refusal, Signalled, Taken, Which};
use windlass::{Priority, RunId, Version, WorkflowName};
use windlass_core::{Call, SignalId, SignalKey, StepName};

use super::claim::RefusalWord;
use super::run::StateWord;
use super::step::{ResultBody, StepBody};
use super::{IdText, Json, KeyText, NameText, at_most};
use crate::problem::{Problem, ProblemBody};

/// The largest place of a child among those of its call: a call has up to 100,000.
pub(crate) const PLACE_MAX: u32 = 99_999;

/// The call that a function asks for.
pub(crate) fn check_call(call: u32) -> Result<Call, Problem> {
    let most = windlass_core::step::CALLS_MAX;
    if (1..=most).contains(&call) {
        return Ok(Call(call));
    }
    Err(Problem::field("call", format_args!("{call} is not within 1 to {most}")))
}

/// Functions ask for signals.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TakeSignals {
    /// Each with the signal that it asks for.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) tasks: Vec<TakeSignalBody>,
}

/// A function asks for a signal: first whether there is one, then for it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TakeSignal)]
pub(crate) struct TakeSignalBody {
    /// The token of the claim.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
    /// The call that waits for it.
    #[schema(minimum = 1, maximum = 50_000)]
    pub(crate) call: u32,
    /// The name of the signal.
    #[schema(value_type = NameText)]
    pub(crate) name: StepName,
    /// The key that it is sent to, if it is not the run.
    #[serde(default)]
    #[schema(value_type = Option<KeyText>)]
    pub(crate) key: Option<SignalKey>,
    /// Takes the oldest that came no later than this one. Without it nothing is taken, and the
    /// answer names the newest.
    #[serde(default)]
    pub(crate) up_to: Option<UpToBody>,
}

/// Which signal is taken.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UpTo)]
pub(crate) struct UpToBody {
    /// The `newest` of an answer before.
    #[schema(value_type = IdText)]
    signal: SignalId,
    /// The place that it is to have among the results of the function.
    #[schema(minimum = 1, maximum = 50_000)]
    number: u32,
}

impl TakeSignalBody {
    /// Which signal it asks for.
    pub(crate) fn which(&self) -> Result<Which, Problem> {
        let most = windlass_core::step::CALLS_MAX;
        match &self.up_to {
            None => Ok(Which::Newest),
            Some(UpToBody { number, .. }) if !(1..=most).contains(number) => {
                let why = format!("{number} is not within 1 to {most}");
                Err(Problem::field("up_to.number", why))
            }
            Some(UpToBody { signal, number }) => Ok(Which::UpTo(*signal, *number)),
        }
    }
}

/// What functions are told that ask for signals, in the order in which they ask.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TakenSignals {
    /// One for each.
    pub(crate) tasks: Vec<TakenSignal>,
}

/// What a function is told that asks for a signal.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct TakenSignal {
    /// The newest that waits for it; none if there is none.
    #[schema(value_type = Option<IdText>)]
    newest: Option<SignalId>,
    /// Whether one was taken: it is the result of the call now, and recorded.
    is_taken: bool,
    /// What the one says that was taken.
    value: Option<Json>,
    /// Why nothing is told.
    refusal: Option<RefusalWord>,
}

impl From<Taken> for TakenSignal {
    fn from(taken: Taken) -> Self {
        let none = TakenSignal::default();
        match taken {
            Ok(None) => none,
            Ok(Some(Signalled::Newest(signal))) => TakenSignal { newest: Some(signal), ..none },
            Ok(Some(Signalled::Value(value))) => {
                TakenSignal { is_taken: true, value: Some(Json::of(&value)), ..none }
            }
            Err(refusal) => TakenSignal { refusal: Some(refusal.into()), ..none },
        }
    }
}

/// Functions start runs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartChildren {
    /// Each with the run that it starts.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) tasks: Vec<StartChild>,
}

/// A function starts a run, of its own tenant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartChild {
    /// The token of the claim.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
    /// The call that starts it.
    #[schema(minimum = 1, maximum = 50_000)]
    pub(crate) call: u32,
    /// Its place among the runs that the call starts, from 0.
    #[serde(default)]
    #[schema(maximum = 99_999)]
    pub(crate) place: u32,
    /// Whether it goes on whatever becomes of the function. Otherwise the call waits for it, and
    /// it is cancelled together with the run.
    #[serde(default)]
    pub(crate) is_detached: bool,
    /// The workflow, which a worker or a program has made known.
    #[schema(value_type = NameText)]
    pub(crate) workflow: WorkflowName,
    /// The version of the workflow; the newest that is known if nothing is said.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 2_147_483_647)]
    pub(crate) version: Option<Version>,
    /// The input; null if nothing is said.
    #[serde(default)]
    pub(crate) input: Json,
    /// What goes first within a queue: the larger number.
    #[serde(default)]
    #[schema(value_type = i16, minimum = -100, maximum = 100)]
    pub(crate) priority: Priority,
    /// Pairs to find the run again by: up to 64, with 1,024 bytes for each key and value.
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
}

/// What became of starts, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StartedChildren {
    /// One for each.
    pub(crate) tasks: Vec<StartedChild>,
}

/// What became of the start of a child.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct StartedChild {
    /// The run, if it is there: new, or since an earlier request.
    #[schema(value_type = Option<IdText>)]
    run: Option<RunId>,
    /// Why nothing was started: the task is not the worker's any more.
    refusal: Option<RefusalWord>,
    /// Why it cannot be started.
    problem: Option<ProblemBody>,
}

impl From<Born> for StartedChild {
    fn from(born: Born) -> Self {
        let none = StartedChild::default();
        match born {
            Born::Started(started) => StartedChild { run: Some(started.run), ..none },
            Born::Refused(refusal) => StartedChild { refusal: Some(refusal.into()), ..none },
            Born::Failed(error) => Problem::from(error).into(),
        }
    }
}

impl From<Problem> for StartedChild {
    fn from(problem: Problem) -> Self {
        StartedChild { problem: Some(problem.body()), ..StartedChild::default() }
    }
}

/// Which children.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountChildren {
    /// The token of the claim.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
    /// The call that started them.
    #[schema(minimum = 1, maximum = 50_000)]
    pub(crate) call: u32,
}

/// How many children a call has.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChildCount)]
pub(crate) struct ChildCountBody {
    /// How many were started, without those that are detached.
    pub(crate) started: u32,
    /// How many of them have not ended.
    pub(crate) open: u32,
}

/// Which children.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListChildren {
    /// The token of the claim.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
    /// The call that started them.
    #[schema(minimum = 1, maximum = 50_000)]
    pub(crate) call: u32,
    /// Only those behind this place.
    #[serde(default)]
    #[schema(maximum = 99_999)]
    pub(crate) after: Option<u32>,
    /// The most children of the answer; 100 if nothing is said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u32>,
}

/// Children of a call, in the order of their places.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Children)]
pub(crate) struct ChildrenBody {
    /// The children.
    pub(crate) children: Vec<ChildBody>,
}

/// A child of a call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Child)]
pub(crate) struct ChildBody {
    /// Its place among the children of the call.
    place: u32,
    /// The run.
    #[schema(value_type = IdText)]
    run: RunId,
    /// Where it is.
    state: StateWord,
    /// What it came to, if it has ended: the output of its only task (null if it has more than
    /// one), or why it did not succeed.
    result: Option<ResultBody>,
}

impl From<Child> for ChildBody {
    fn from(child: Child) -> Self {
        let result = child.result.as_ref().map(ResultBody::from);
        ChildBody { place: child.place, run: child.run, state: child.state.into(), result }
    }
}

/// A run that undoes another asks what there is to undo.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadUndo {
    /// The token of the claim of the task that undoes.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
}

/// What there is to undo.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct UndoTasks {
    /// The tasks, in the order in which they are to be undone.
    pub(crate) tasks: Vec<UndoTask>,
    /// Why nothing is told: the task is not the worker's any more.
    pub(crate) refusal: Option<RefusalWord>,
}

impl From<Refusal> for UndoTasks {
    fn from(refusal: Refusal) -> Self {
        UndoTasks { tasks: Vec::new(), refusal: Some(refusal.into()) }
    }
}

/// A task whose steps are to be undone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UndoTask {
    /// The run whose task it is.
    #[schema(value_type = IdText)]
    run: RunId,
    /// The name of the task.
    task: String,
    /// The place of the task in the definition.
    index: u32,
    /// The input that the function had.
    input: Json,
    /// What is known of its calls. Those of the kind `undoable` that have a value are to be
    /// undone, the one with the largest number first.
    steps: Vec<StepBody>,
}

impl From<&Claimed> for UndoTask {
    fn from(claimed: &Claimed) -> Self {
        UndoTask {
            run: claimed.task.run,
            task: claimed.spec.name.to_string(),
            index: claimed.task.index.0,
            input: Json::of(&claimed.input),
            steps: claimed.steps.iter().map(StepBody::from).collect(),
        }
    }
}
