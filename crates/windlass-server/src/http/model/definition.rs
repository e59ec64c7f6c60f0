//! Workflows as a worker in any language writes them down.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use utoipa::ToSchema;
use windlass::{Definition, ErrorKind, Limit, Priority, RetryPolicy, Trigger, Version};
use windlass_core::definition::{DefinitionDraft, TaskDraft, TaskKind};
use windlass_core::{LimitScope, WhenFull, WorkerLost};

use crate::problem::Problem;

/// The most codes of failures that a task names as never tried again: a worker carries them.
const CODES_MAX: usize = 100;

/// A workflow: tasks, and which of them come before which.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Definition)]
pub(crate) struct DefinitionBody {
    /// The name of the workflow.
    #[schema(value_type = super::NameText)]
    name: String,
    /// The version; 1 if nothing is said. The same version always has the same tasks and edges.
    #[serde(default = "first_version")]
    #[schema(value_type = u32, minimum = 1, maximum = 2_147_483_647, default = 1)]
    version: Version,
    /// How long a run may take.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    timeout_ms: Option<u64>,
    /// The tasks. A claim names parents by their place in this list, from 0.
    #[schema(min_items = 1, max_items = 50_000)]
    tasks: Vec<TaskBody>,
}

fn first_version() -> Version {
    Version::FIRST
}

/// A task of a workflow.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TaskDefinition)]
pub(crate) struct TaskBody {
    /// Its name, unique within the workflow.
    #[schema(value_type = super::NameText)]
    name: String,
    /// The names of the tasks that must end first.
    #[serde(default)]
    #[schema(value_type = Vec<super::NameText>, max_items = 50_000)]
    after: Vec<String>,
    /// Lets it be a sleep of this time, which needs no worker.
    #[serde(default)]
    #[schema(maximum = 3_153_600_000_000u64)]
    sleep_ms: Option<u64>,
    /// Lets it run after everything else has ended, if a task failed.
    #[serde(default)]
    is_on_failure: bool,
    /// Which ends of the tasks before it let it run.
    #[serde(default)]
    trigger: TriggerWord,
    /// How often it is tried.
    #[serde(default)]
    retry: RetryBody,
    /// How long one attempt may take. The worker keeps to it: a claim says it.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    timeout_ms: Option<u64>,
    /// How long one attempt may give no sign of life. The worker keeps to it.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    heartbeat_timeout_ms: Option<u64>,
    /// How long it may wait in its queue for a worker.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    claim_timeout_ms: Option<u64>,
    /// How long after its claim it is taken away from its worker, whatever that says.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    visibility_timeout_ms: Option<u64>,
    /// What becomes of it when its worker is lost.
    #[serde(default)]
    on_worker_lost: LostWord,
    /// The queue it waits in.
    #[serde(default = "default_queue")]
    #[schema(value_type = super::NameText, default = "default")]
    queue: String,
    /// Its priority, relative to the run's.
    #[serde(default)]
    #[schema(value_type = i16, minimum = -100, maximum = 100)]
    priority: Priority,
    /// How many tasks with the same keys may be under way at once.
    #[serde(default)]
    #[schema(max_items = 8)]
    limits: Vec<LimitBody>,
}

fn default_queue() -> String {
    windlass_core::name::DEFAULT.to_owned()
}

/// Which ends of a task's parents let it run.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Trigger)]
pub(crate) enum TriggerWord {
    /// All of them succeeded.
    #[default]
    AllSucceeded,
    /// All of them ended, in whatever way.
    AllFinished,
    /// At least one failed.
    AnyFailed,
    /// None failed; skipped ones are fine.
    NoneFailed,
}

/// What becomes of a task whose worker is lost.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WorkerLost)]
pub(crate) enum LostWord {
    /// It is tried again, as far as attempts last.
    #[default]
    Retry,
    /// It fails for good.
    Fail,
}

/// How often, and with which pauses, a task is tried.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = RetryPolicy)]
pub(crate) struct RetryBody {
    /// How often, the first attempt included; 5 if nothing is said.
    #[schema(minimum = 1, maximum = 10_000)]
    attempts: Option<u32>,
    /// The pause after the first attempt; a second if nothing is said.
    #[schema(maximum = 3_153_600_000_000u64)]
    first_delay_ms: Option<u64>,
    /// By how much each pause is longer than the one before; 2 if nothing is said.
    #[schema(minimum = 1)]
    factor: Option<f64>,
    /// The longest pause; a minute if nothing is said.
    #[schema(maximum = 3_153_600_000_000u64)]
    delay_max_ms: Option<u64>,
    /// Which share of a pause is random; 0.2 if nothing is said.
    #[schema(minimum = 0, maximum = 1)]
    jitter: Option<f64>,
    /// The codes of failures that are never tried again, of up to 100 bytes each.
    #[schema(max_items = 100)]
    never_for: Vec<String>,
}

impl RetryBody {
    fn build(self, task: &str) -> Result<RetryPolicy, Problem> {
        let (codes, bytes) = (CODES_MAX, windlass_core::decide::CODE_BYTES_MAX);
        if self.never_for.len() > codes || self.never_for.iter().any(|code| code.len() > bytes) {
            let why = format!(
                "task {task:?}: never_for has more than {codes} codes, or one of more than {bytes} \
                 bytes"
            );
            return Err(Problem::new(ErrorKind::Definition, why));
        }
        let mut policy = RetryPolicy::exponential().never_for(self.never_for);
        if let Some(attempts) = self.attempts {
            policy = policy.attempts(attempts);
        }
        if let Some(delay) = self.first_delay_ms {
            policy = policy.first_delay(Duration::from_millis(delay));
        }
        if let Some(factor) = self.factor {
            policy = policy.factor(factor);
        }
        if let Some(delay) = self.delay_max_ms {
            policy = policy.delay_max(Duration::from_millis(delay));
        }
        if let Some(jitter) = self.jitter {
            policy = policy.jitter(jitter);
        }
        Ok(policy)
    }
}

/// How many tasks with the same key may be under way at once.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Limit)]
pub(crate) struct LimitBody {
    /// How many.
    #[schema(minimum = 1, maximum = 100_000)]
    slots: u32,
    /// The field of the input that is the key, behind dots if it lies deeper; one lane for all
    /// if nothing is said.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    field: Option<String>,
    /// Its name, if it is to be shared with other tasks.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 600)]
    name: Option<String>,
    /// What becomes of a task that finds no room.
    #[serde(default)]
    when_full: FullWord,
    /// Whether all tenants share the lanes.
    #[serde(default)]
    is_across_tenants: bool,
    /// Whether a task that failed for good keeps its slots until someone sees to it.
    #[serde(default)]
    halts: bool,
}

/// What becomes of a task whose lane is full.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WhenFull)]
pub(crate) enum FullWord {
    /// It waits until there is room.
    #[default]
    Wait,
    /// It is skipped.
    Skip,
    /// It waits, and the run that came first of those in the lane is cancelled.
    CancelOldest,
}

impl LimitBody {
    fn build(self) -> Limit {
        let mut limit = Limit::of(self.slots).when_full(match self.when_full {
            FullWord::Wait => WhenFull::Wait,
            FullWord::Skip => WhenFull::Skip,
            FullWord::CancelOldest => WhenFull::CancelOldest,
        });
        limit.field = self.field;
        limit.name = self.name;
        limit.halts = self.halts;
        limit.scope = match self.is_across_tenants {
            true => LimitScope::Everyone,
            false => LimitScope::Tenant,
        };
        limit
    }
}

impl TaskBody {
    fn build(self, workflow: &str) -> Result<TaskDraft, Problem> {
        let kind = match (self.sleep_ms, self.is_on_failure) {
            (None, false) => TaskKind::Handler,
            (None, true) => TaskKind::OnFailure,
            (Some(time), false) => TaskKind::Sleep(Duration::from_millis(time)),
            (Some(_), true) => {
                let name = &self.name;
                let why = format!(
                    "workflow {workflow:?}: task {name:?} has sleep_ms and is_on_failure, and can \
                     be only one of them"
                );
                return Err(Problem::new(ErrorKind::Definition, why));
            }
        };
        let retry = self.retry.build(&self.name)?;
        let longest = super::millis(windlass_core::retry::WAIT_MAX);
        for (field, time) in
            [("timeout_ms", self.timeout_ms), ("heartbeat_timeout_ms", self.heartbeat_timeout_ms)]
        {
            if let Some(time) = time.filter(|time| *time > longest) {
                let name = &self.name;
                let why = format!("task {name:?}: {field} is {time}, the limit is {longest}");
                return Err(Problem::new(ErrorKind::Definition, why));
            }
        }
        Ok(TaskDraft {
            name: self.name,
            kind,
            parents: self.after,
            trigger: match self.trigger {
                TriggerWord::AllSucceeded => Trigger::AllSucceeded,
                TriggerWord::AllFinished => Trigger::AllFinished,
                TriggerWord::AnyFailed => Trigger::AnyFailed,
                TriggerWord::NoneFailed => Trigger::NoneFailed,
            },
            retry,
            timeout: self.timeout_ms.map(Duration::from_millis),
            heartbeat_timeout: self.heartbeat_timeout_ms.map(Duration::from_millis),
            claim_timeout: self.claim_timeout_ms.map(Duration::from_millis),
            visibility_timeout: self.visibility_timeout_ms.map(Duration::from_millis),
            on_worker_lost: match self.on_worker_lost {
                LostWord::Retry => WorkerLost::Retry,
                LostWord::Fail => WorkerLost::Fail,
            },
            queue: self.queue,
            priority: self.priority,
            limits: self.limits.into_iter().map(LimitBody::build).collect(),
        })
    }
}

impl DefinitionBody {
    /// The definition, if it passes every check.
    pub(crate) fn build(self) -> Result<Arc<Definition>, Problem> {
        let name = self.name;
        let tasks = self.tasks.into_iter().map(|task| task.build(&name));
        let tasks = tasks.collect::<Result<_, _>>()?;
        let timeout = self.timeout_ms.map(Duration::from_millis);
        let draft = DefinitionDraft { name, version: self.version, timeout, tasks };
        match draft.build() {
            Ok(definition) => Ok(Arc::new(definition)),
            Err(error) => Err(Problem::new(ErrorKind::Definition, error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(text: &str) -> Result<Arc<Definition>, Problem> {
        serde_json::from_str::<DefinitionBody>(text).expect("it is one").build()
    }

    #[test]
    fn a_definition_says_what_the_builder_says() {
        let definition = build(
            r#"{"name": "order", "version": 3, "timeout_ms": 60000, "tasks": [
                {"name": "charge", "timeout_ms": 500, "queue": "money", "priority": 5,
                 "retry": {"attempts": 2, "first_delay_ms": 10, "never_for": ["declined"]},
                 "limits": [{"slots": 1, "field": "customer"}]},
                {"name": "pause", "after": ["charge"], "sleep_ms": 1000},
                {"name": "ship", "after": ["pause"], "trigger": "all_finished"},
                {"name": "tell", "is_on_failure": true}]}"#,
        )
        .unwrap();
        let charge = &definition.tasks()[0];
        let policy = RetryPolicy::exponential().attempts(2).first_delay(Duration::from_millis(10));
        assert_eq!(charge.retry, policy.never_for(["declined"]));
        assert_eq!(charge.timeout, Some(Duration::from_millis(500)));
        assert_eq!((charge.queue.as_str(), charge.priority.get()), ("money", 5));
        assert_eq!(charge.limits.len(), 1);
        assert_eq!(definition.tasks()[1].kind, TaskKind::Sleep(Duration::from_secs(1)));
        assert_eq!(definition.tasks()[2].trigger, Trigger::AllFinished);
        assert_eq!(definition.tasks()[3].kind, TaskKind::OnFailure);
        assert_eq!(definition.version().get(), 3);
        assert_eq!(definition.timeout(), Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_definition_that_makes_no_sense_names_task_and_field() {
        let error = build(r#"{"name":"w","tasks":[{"name":"a","after":["b"]}]}"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Definition);
        assert!(error.detail().contains("\"a\"") && error.detail().contains("\"b\""), "{error:?}");
        let text = r#"{"name":"w","tasks":[{"name":"a","retry":{"attempts":0}}]}"#;
        let error = build(text).unwrap_err();
        assert!(error.detail().contains("\"a\"") && error.detail().contains("attempts"));
        let text = r#"{"name":"w","tasks":[{"name":"a","sleep_ms":1,"is_on_failure":true}]}"#;
        assert!(build(text).unwrap_err().detail().contains("task \"a\" has sleep_ms"));
    }
}
