//! What workers say, and what they are told.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use windlass::store::{Answer, Claimed, HandlerKey, Refusal, WorkerInfo};
use windlass::{QueueName, RunId, Version, WorkerId, WorkflowName};
use windlass_core::{Outcome, WorkerName};

use super::definition::DefinitionBody;
use super::step::{ParkingBody, SaidFailure, StepBody, WriteStep};
use super::{FailureBody, IdText, Json, NameText, Time, at_most, millis, read_list};
use crate::http::token::Token;
use crate::problem::Problem;
use crate::workers::{LEASE_MAX, LEASE_MIN};

/// The longest time that a claim is held.
pub(crate) const WAIT_MS_MAX: u64 = 30_000;

/// The largest number of a claim.
pub(crate) const CLAIM_MAX: u64 = 1 << 40;

/// The shortest and the longest lease of a worker.
pub(crate) const LEASE_MS_MIN: u64 = LEASE_MIN.as_millis() as u64;
pub(crate) const LEASE_MS_MAX: u64 = LEASE_MAX.as_millis() as u64;

/// The most slots of a worker.
pub(crate) const SLOTS_MAX: u32 = 10_000;

/// A worker introduces itself.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JoinWorker {
    /// What people call it.
    #[schema(value_type = NameText)]
    pub(crate) name: WorkerName,
    /// How many tasks it runs at once.
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) slots: u32,
    /// How long after its last heartbeat its tasks are taken away; 30 seconds if nothing is said.
    #[serde(default = "lease_ms")]
    #[schema(minimum = 1000, maximum = 86_400_000, default = 30_000)]
    pub(crate) lease_ms: u64,
    /// The queues it serves; `default` if nothing is said.
    #[serde(default = "default_queues")]
    #[schema(value_type = Vec<NameText>, min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) queues: Vec<QueueName>,
    /// The workflows it has handlers for.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "workflows_at_most")]
    pub(crate) workflows: Vec<DefinitionBody>,
    /// The machine or container it runs on.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub(crate) host: String,
    /// The number of its operating-system process.
    #[serde(default)]
    #[schema(maximum = 2_147_483_647)]
    pub(crate) pid: Option<u32>,
    /// The version of the program.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub(crate) version: String,
    /// What else there is to say of it: up to 32 pairs of 256 bytes each.
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
}

/// The most tasks of the workflows of one worker, in all.
const JOIN_TASKS_MAX: usize = 100_000;

/// Reads the workflows of a worker, of which each counts for its tasks.
fn workflows_at_most<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<DefinitionBody>, D::Error> {
    read_list(deserializer, JOIN_TASKS_MAX, |workflow: &DefinitionBody| workflow.tasks().max(1))
}

fn lease_ms() -> u64 {
    30_000
}

fn default_queues() -> Vec<QueueName> {
    vec![QueueName::default()]
}

impl JoinWorker {
    /// What it says of itself.
    pub(crate) fn info(&self) -> Result<WorkerInfo, Problem> {
        let within = |field: &str, number: u64, min: u64, max: u64| match number {
            number if (min..=max).contains(&number) => Ok(()),
            _ => Err(Problem::field(field, format_args!("{number} is not within {min} to {max}"))),
        };
        within("slots", self.slots.into(), 1, SLOTS_MAX.into())?;
        within("lease_ms", self.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)?;
        if let Some(pid) = self.pid {
            within("pid", pid.into(), 0, i32::MAX.cast_unsigned().into())?;
        }
        super::check_items("queues", self.queues.len())?;
        super::check_items("workflows", self.workflows.len())?;
        let info = WorkerInfo {
            host: self.host.clone(),
            pid: self.pid,
            version: self.version.clone(),
            queues: self.queues.clone(),
            metadata: self.metadata.clone(),
        };
        info.check().map_err(|why| Problem::new(windlass::ErrorKind::Argument, why))?;
        Ok(info)
    }
}

/// A worker that joined.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JoinedWorker {
    /// Its id, for this life.
    #[schema(value_type = IdText)]
    pub(crate) id: WorkerId,
    /// How long after its last heartbeat its tasks are taken away.
    pub(crate) lease_ms: u64,
    /// How often it had better send a heartbeat while it has tasks: three times per lease.
    pub(crate) heartbeat_ms: u64,
}

/// A workflow and version that a worker has handlers for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Handler)]
pub(crate) struct HandlerBody {
    /// The workflow.
    #[schema(value_type = NameText)]
    pub(crate) name: WorkflowName,
    /// Its version; 1 if nothing is said.
    #[serde(default = "first_version")]
    #[schema(value_type = u32, minimum = 1, maximum = 2_147_483_647, default = 1)]
    pub(crate) version: Version,
}

fn first_version() -> Version {
    Version::FIRST
}

impl From<HandlerBody> for HandlerKey {
    fn from(body: HandlerBody) -> HandlerKey {
        HandlerKey { workflow: body.name, version: body.version }
    }
}

/// A worker asks for tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimTasks {
    /// The number of this claim: 1, and one more for each that follows. A number that was used
    /// before is answered with no tasks.
    #[schema(minimum = 1, maximum = 1_099_511_627_776u64)]
    pub(crate) number: u64,
    /// The queues it serves; `default` if nothing is said.
    #[serde(default = "default_queues")]
    #[schema(value_type = Vec<NameText>, min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) queues: Vec<QueueName>,
    /// The workflows it has handlers for.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) workflows: Vec<HandlerBody>,
    /// The most tasks it wants: its free slots.
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) limit: u32,
    /// How long to wait for a task if there is none.
    #[serde(default)]
    #[schema(maximum = 30_000)]
    pub(crate) wait_ms: u64,
}

/// The tasks that are leased to a worker.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimedTasks {
    /// None if there were none in time.
    pub(crate) tasks: Vec<ClaimedBody>,
}

/// A task that is leased to a worker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClaimedTask)]
pub(crate) struct ClaimedBody {
    /// What everything that is said of this attempt carries. It is not to be read.
    token: String,
    /// The run.
    #[schema(value_type = IdText)]
    run: RunId,
    /// The name of the task.
    task: String,
    /// The place of the task in the definition.
    index: u32,
    /// The workflow.
    workflow: String,
    /// The version of the workflow.
    version: u32,
    /// The tenant of the run.
    tenant: String,
    /// The number of this attempt, from 1.
    attempt: u32,
    /// How many attempts there are.
    attempts_max: u32,
    /// The round of the run.
    round: u32,
    /// How long the attempt may take.
    timeout_ms: Option<u64>,
    /// How long the attempt may give no sign of life.
    heartbeat_timeout_ms: Option<u64>,
    /// The input of the run.
    input: Json,
    /// How the parents ended, by their place in the definition.
    parents: Vec<ParentBody>,
    /// For an on-failure task: which tasks failed.
    failures: Vec<FailedTask>,
    /// The newest checkpoint of earlier attempts.
    checkpoint: Option<Json>,
    /// Why the newest attempt that failed did.
    last_failure: Option<FailureBody>,
    /// What is known of the calls of a durable function.
    steps: Vec<StepBody>,
    /// When it was claimed.
    claimed_at: Time,
    /// The W3C `traceparent` of the run, if its starter said so.
    trace_parent: Option<String>,
}

/// How a parent of a claimed task ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ParentEnd)]
pub(crate) struct ParentBody {
    /// Its place in the definition.
    index: u32,
    /// Its state.
    #[schema(value_type = String)]
    state: &'static str,
    /// Its output, if it succeeded.
    output: Option<Json>,
}

/// A task of the run that failed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailedTask {
    /// Its name.
    task: String,
    /// Why.
    failure: FailureBody,
}

impl ClaimedBody {
    pub(crate) fn new(worker: WorkerId, claimed: &Claimed) -> Self {
        let parent = |end: &windlass::store::ParentEnd| ParentBody {
            index: end.index.0,
            state: end.state.word(),
            output: end.output.as_ref().map(Json::of),
        };
        let failed = |(task, failure): &(windlass::TaskName, windlass::Failure)| FailedTask {
            task: task.to_string(),
            failure: failure.into(),
        };
        let spec = &claimed.spec;
        ClaimedBody {
            token: Token::of(worker, claimed).to_text(),
            run: claimed.task.run,
            task: spec.name.to_string(),
            index: claimed.task.index.0,
            workflow: claimed.workflow.to_string(),
            version: claimed.version.get(),
            tenant: claimed.tenant.to_string(),
            attempt: claimed.attempt,
            attempts_max: spec.retry.max_attempts(),
            round: claimed.round,
            timeout_ms: spec.timeout.map(millis),
            heartbeat_timeout_ms: spec.heartbeat_timeout.map(millis),
            input: Json::of(&claimed.input),
            parents: claimed.parents.iter().map(parent).collect(),
            failures: claimed.failures.iter().map(failed).collect(),
            checkpoint: claimed.checkpoint.as_ref().map(Json::of),
            last_failure: claimed.last_failure.as_ref().map(FailureBody::from),
            steps: claimed.steps.iter().map(StepBody::from).collect(),
            claimed_at: claimed.at.into(),
            trace_parent: claimed.trace.as_ref().map(ToString::to_string),
        }
    }
}

/// Tasks that a worker has run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FinishTasks {
    /// Each with what came of it.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) tasks: Vec<FinishTask>,
}

/// A task that a worker has run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FinishTask {
    /// The token of the claim.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
    /// What came of it. Whether it is tried again is decided by the server.
    pub(crate) outcome: OutcomeBody,
}

/// What came of an attempt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Outcome)]
pub(crate) enum OutcomeBody {
    /// It gave this output.
    Succeeded(Json),
    /// It failed.
    Failed(SaidFailure),
    /// Its condition was false; nothing was run.
    Skipped,
    /// The worker ends before it does. It is tried again at once, as far as attempts last.
    Interrupted,
    /// The function waits for something and needs no worker until then.
    Parked(ParkingBody),
    /// The function begins afresh with this input.
    Continued(Json),
}

impl OutcomeBody {
    /// What the rules decide about.
    pub(crate) fn build(self, limit: windlass::PayloadLimit) -> Result<Outcome, Problem> {
        Ok(match self {
            OutcomeBody::Succeeded(output) => {
                Outcome::Returned(output.to_payload("output", limit)?)
            }
            OutcomeBody::Failed(failure) => Outcome::Failed(failure.into()),
            OutcomeBody::Skipped => Outcome::ConditionFalse,
            OutcomeBody::Interrupted => Outcome::Interrupted,
            OutcomeBody::Parked(parking) => Outcome::Parked(parking.build(limit)?),
            OutcomeBody::Continued(input) => Outcome::Continued(input.to_payload("input", limit)?),
        })
    }
}

/// Tasks that a worker hands back without having run them.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseTasks {
    /// The tasks.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) tasks: Vec<ReleaseTask>,
}

/// A task that is handed back; the attempt does not count.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseTask {
    /// The token of the claim.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
    /// How long nobody shall claim it.
    #[serde(default)]
    #[schema(maximum = 3_153_600_000_000u64)]
    pub(crate) delay_ms: u64,
}

impl ReleaseTask {
    /// How long nobody shall claim it.
    pub(crate) fn delay(&self) -> Result<Duration, Problem> {
        let delay = Duration::from_millis(self.delay_ms);
        if delay > windlass_core::retry::WAIT_MAX {
            let why = format!("{} is over the limit of a hundred years", self.delay_ms);
            return Err(Problem::field("delay_ms", why));
        }
        Ok(delay)
    }
}

/// Values for the next attempts of tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointTasks {
    /// Each with its value.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) tasks: Vec<CheckpointTask>,
}

/// A value for the next attempts of a task, in the place of the one before.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointTask {
    /// The token of the claim.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
    /// The value.
    pub(crate) value: Json,
}

/// What became of calls of durable functions.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordSteps {
    /// Each with its calls.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) tasks: Vec<RecordTask>,
}

/// What became of calls of one durable function: all of it is recorded, or nothing.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordTask {
    /// The token of the claim.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
    /// The calls.
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "at_most::<1000, _, _>")]
    pub(crate) steps: Vec<WriteStep>,
}

/// A worker says that it lives and what it does.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Heartbeat)]
pub(crate) struct HeartbeatBody {
    /// Up to this claim the worker knows all answers, or has given up on them: tasks of theirs
    /// that it does not hold go back to their queues. 0 if it knows of none.
    #[schema(maximum = 1_099_511_627_776u64)]
    pub(crate) settled: u64,
    /// The tokens of the tasks it holds: those that run, and those whose end has not been
    /// answered yet.
    #[schema(max_items = 10_000)]
    #[serde(deserialize_with = "at_most::<10_000, _, _>")]
    pub(crate) held: Vec<String>,
    /// What handlers say of their progress.
    #[serde(default)]
    #[schema(max_items = 10_000)]
    #[serde(deserialize_with = "at_most::<10_000, _, _>")]
    pub(crate) progress: Vec<ProgressBody>,
}

/// What a handler says of its progress.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Progress)]
pub(crate) struct ProgressBody {
    /// The token of the claim.
    #[schema(max_length = 1_000_000)]
    pub(crate) token: String,
    /// The note.
    pub(crate) note: Json,
}

/// The answer to a heartbeat.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeartbeatAnswer)]
pub(crate) struct HeartbeatAnswerBody {
    /// The tasks that are not the worker's any more: it stops them and says nothing of them.
    pub(crate) lost: Vec<LostTask>,
    /// Whether an operator drains the worker: it claims nothing more, finishes what it holds and
    /// leaves.
    pub(crate) should_drain: bool,
}

/// A task that a worker holds no more.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LostTask {
    /// The token that was sent.
    pub(crate) token: String,
    /// Why.
    pub(crate) why: RefusalWord,
}

/// What became of what a worker said, in the order in which it was said.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskAnswers {
    /// One for each task.
    pub(crate) tasks: Vec<TaskAnswer>,
}

/// What became of what a worker said of a task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskAnswer {
    /// Whether it is done, by this request or by one before.
    is_accepted: bool,
    /// Why it is not, and never will be.
    refusal: Option<RefusalWord>,
}

/// Why something that a worker said is refused.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Refusal)]
pub(crate) enum RefusalWord {
    /// The lease went to another claim, or back to the queue.
    LeaseLost,
    /// The run was cancelled.
    RunCancelled,
    /// There is no such task.
    UnknownTask,
    /// It cannot be kept, and it would be the same the next time.
    Invalid,
}

impl From<Refusal> for RefusalWord {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::LeaseLost => RefusalWord::LeaseLost,
            Refusal::RunCancelled => RefusalWord::RunCancelled,
            Refusal::UnknownTask => RefusalWord::UnknownTask,
            Refusal::Invalid => RefusalWord::Invalid,
        }
    }
}

impl From<Vec<Answer>> for TaskAnswers {
    fn from(answers: Vec<Answer>) -> Self {
        let body = |answer: Answer| match answer {
            Answer::Accepted | Answer::AcceptedAlready => {
                TaskAnswer { is_accepted: true, refusal: None }
            }
            Answer::Refused(why) => TaskAnswer { is_accepted: false, refusal: Some(why.into()) },
        };
        TaskAnswers { tasks: answers.into_iter().map(body).collect() }
    }
}
