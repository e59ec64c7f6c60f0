//! The pure domain of Windlass.
//!
//! Everything here is a function of its arguments: there is no IO, no clock and
//! no randomness. `now`, jitter and ids are passed in. A store (in memory or in
//! PostgreSQL) applies what this crate decides.
//!
//! | module | answers |
//! |---|---|
//! | [`definition`] | is this DAG a valid workflow? |
//! | [`state`] | which state follows from a state and a command? |
//! | [`retry`] | when is the next attempt, if there is one? |
//! | [`mod@decide`] | what follows from the outcome of an attempt? |
//! | [`progress`] | what follows for the rest of the run when a task ends? |
//! | [`step`] | what does a durable function remember? |
//! | [`fairness`] | whose turn is it? |
//! | [`lane`] | how many with the same key may be under way at once? |
//! | [`schedule`] | when do runs start by themselves? |
//! | [`token`] | what does someone show to say who they are? |
//! | [`trace`] | whose trace does a run belong to? |
//! | [`undo`] | how is what it did undone? |
//! | [`why`] | why does a run not go on? |
//! | [`secret`] | how is a text kept from being shown? |
//! | [`event`] | how is it written down? |

pub mod decide;
pub mod definition;
pub mod event;
pub mod fairness;
pub mod id;
pub mod lane;
pub mod name;
pub mod nearest;
pub mod payload;
pub mod progress;
pub mod retry;
pub mod ring;
pub mod schedule;
pub mod secret;
pub mod state;
pub mod step;
pub mod time;
pub mod token;
pub mod trace;
pub mod undo;
pub mod why;

pub use decide::{
    Decision, Failure, FailureCode, Outcome, WorkerLost, decide, decide_lease_expired,
};
pub use definition::{Definition, DefinitionDraft, DefinitionError, TaskKind, TaskSpec, Trigger};
pub use event::{Event, EventBody, RunEvent, RunEventKind, TaskEvent, TaskEventKind};
pub use fairness::{AGEING, Phase, Tag, Weight, first_priority, next_tag};
pub use id::{
    ActionId, CandidateId, ClaimSeq, EventId, Fence, IdError, Priority, RunId, ScheduleId,
    SignalId, TaskId, TaskIndex, Term, Version, WorkerId,
};
pub use lane::{Bound, LaneId, LaneKeys, LaneLimit, Lanes, Limit, LimitScope, WhenFull};
pub use name::{
    DutyName, IdempotencyKey, LaneKey, LimitName, NameError, Operator, QueueName, ScheduleName,
    ScheduleOwner, SignalKey, StepName, TaskName, Tenant, WorkerName, WorkflowName,
};
pub use payload::{Payload, PayloadError, PayloadLimit};
pub use progress::{Effect, ParentTally, Progress, RunCounters};
pub use retry::{RetryError, RetryPolicy};
pub use ring::Bucket;
pub use schedule::{Cadence, CadenceError, Missed, Overlap, Timing, TimingError, Zone};
pub use secret::Secret;
pub use state::{IllegalTransition, RunCommand, RunState, TaskCommand, TaskState};
pub use step::{
    Call, Parking, StepChange, StepKind, StepRecord, StepResult, StepState, StepWrite, Wait,
};
pub use time::Timestamp;
pub use token::{Role, Roles, Token, TokenError, TokenId};
pub use trace::TraceContext;
pub use undo::Undoing;
pub use why::{Reason, TaskWhy, Why};
