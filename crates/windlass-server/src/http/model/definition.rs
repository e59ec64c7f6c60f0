//! Workflows as a worker in any language writes them down.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::{Definition, ErrorKind, Priority, RetryPolicy, Trigger, Version};
use windlass_core::WorkerLost;
use windlass_core::definition::{DefinitionDraft, TaskDraft, TaskKind};

use super::limit::LimitBody;
use super::{at_most, millis};
use crate::problem::Problem;

/// The most codes of failures that a task names as never tried again: a worker carries them.
const CODES_MAX: usize = 100;

/// A workflow: tasks, and which of them come before which.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    timeout_ms: Option<u64>,
    /// The tasks. A claim names parents by their place in this list, from 0.
    #[schema(min_items = 1, max_items = 50_000)]
    #[serde(deserialize_with = "at_most::<50_000, _, _>")]
    tasks: Vec<TaskBody>,
}

fn first_version() -> Version {
    Version::FIRST
}

/// A task of a workflow.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TaskDefinition)]
pub(crate) struct TaskBody {
    /// Its name, unique within the workflow.
    #[schema(value_type = super::NameText)]
    name: String,
    /// The names of the tasks that must end first.
    #[serde(default)]
    #[schema(value_type = Vec<super::NameText>, max_items = 50_000)]
    #[serde(deserialize_with = "at_most::<50_000, _, _>")]
    after: Vec<String>,
    /// Lets it be a sleep of this time, which needs no worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    timeout_ms: Option<u64>,
    /// How long one attempt may give no sign of life. The worker keeps to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    heartbeat_timeout_ms: Option<u64>,
    /// How long it may wait in its queue for a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_153_600_000_000u64)]
    claim_timeout_ms: Option<u64>,
    /// How long after its claim it is taken away from its worker, whatever that says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// What bounds tasks with the same keys.
    #[serde(default)]
    #[schema(max_items = 8)]
    limits: Vec<LimitBody>,
}

fn default_queue() -> String {
    windlass_core::name::DEFAULT.to_owned()
}

/// Which ends of a task's parents let it run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
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
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
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
        let limits = self.limits.into_iter().map(|limit| limit.build(&self.name));
        let limits = limits.collect::<Result<_, _>>()?;
        let longest = millis(windlass_core::retry::WAIT_MAX);
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
            limits,
        })
    }
}

impl DefinitionBody {
    /// How many tasks it has.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

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

impl From<&Definition> for DefinitionBody {
    fn from(definition: &Definition) -> Self {
        let DefinitionDraft { name, version, timeout, tasks } = definition.to_draft();
        let tasks = tasks.into_iter().map(TaskBody::from).collect();
        DefinitionBody { name, version, timeout_ms: timeout.map(millis), tasks }
    }
}

impl From<TaskDraft> for TaskBody {
    fn from(task: TaskDraft) -> Self {
        let (sleep_ms, is_on_failure) = match task.kind {
            TaskKind::Handler => (None, false),
            TaskKind::OnFailure => (None, true),
            TaskKind::Sleep(time) => (Some(millis(time)), false),
        };
        TaskBody {
            name: task.name,
            after: task.parents,
            sleep_ms,
            is_on_failure,
            trigger: match task.trigger {
                Trigger::AllSucceeded => TriggerWord::AllSucceeded,
                Trigger::AllFinished => TriggerWord::AllFinished,
                Trigger::AnyFailed => TriggerWord::AnyFailed,
                Trigger::NoneFailed => TriggerWord::NoneFailed,
            },
            retry: task.retry.into(),
            timeout_ms: task.timeout.map(millis),
            heartbeat_timeout_ms: task.heartbeat_timeout.map(millis),
            claim_timeout_ms: task.claim_timeout.map(millis),
            visibility_timeout_ms: task.visibility_timeout.map(millis),
            on_worker_lost: match task.on_worker_lost {
                WorkerLost::Retry => LostWord::Retry,
                WorkerLost::Fail => LostWord::Fail,
            },
            queue: task.queue,
            priority: task.priority,
            limits: task.limits.into_iter().map(LimitBody::from).collect(),
        }
    }
}

impl From<RetryPolicy> for RetryBody {
    fn from(policy: RetryPolicy) -> Self {
        RetryBody {
            attempts: Some(policy.attempts),
            first_delay_ms: Some(millis(policy.first_delay)),
            factor: Some(policy.factor),
            delay_max_ms: Some(millis(policy.delay_max)),
            jitter: Some(policy.jitter),
            never_for: policy.non_retryable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::wire::Wire as _;
    use windlass_proto::v1;

    /// A task that says everything; what a message can say besides does not build here.
    fn full_task() -> v1::Task {
        let limit = |bound, when_full: v1::WhenFull, halts| v1::Limit {
            name: Some("shared".to_owned()),
            field: Some("order.customer".to_owned()),
            bound: Some(bound),
            when_full: when_full.into(),
            is_across_tenants: true,
            halts,
            is_owned: false,
        };
        let (per_us, quiet_us, at_most_us) = (60_000_000, 5_000_000, 7_000_000);
        let (window_us, pause_us) = (30_000_000, 15_000_000);
        let rate = v1::Rate { count: 100, per_us, burst: 10 };
        let debounce = v1::Debounce { quiet_us, at_most_us };
        let breaker = v1::Breaker { percent: 25, calls: 4, window_us, pause_us };
        let mut limits = vec![
            limit(v1::limit::Bound::Slots(3), v1::WhenFull::CancelOldest, true),
            limit(v1::limit::Bound::Rate(rate), v1::WhenFull::Skip, false),
            limit(v1::limit::Bound::Debounce(debounce), v1::WhenFull::Wait, false),
            limit(v1::limit::Bound::Breaker(breaker), v1::WhenFull::Skip, false),
        ];
        for (number, limit) in limits.iter_mut().enumerate() {
            limit.name = Some(format!("shared {number}"));
            limit.is_owned = number == 0;
        }
        v1::Task {
            name: "charge".to_owned(),
            kind: v1::TaskKind::Handler.into(),
            sleep_us: None,
            parents: vec!["pause".to_owned()],
            trigger: v1::Trigger::NoneFailed.into(),
            retry: Some(v1::RetryPolicy {
                attempts: 7,
                first_delay_us: 250_000,
                factor: 1.5,
                delay_max_us: 9_000_000,
                jitter: 0.125,
                non_retryable: vec!["declined".to_owned()],
            }),
            timeout_us: Some(1_000_000),
            heartbeat_timeout_us: Some(2_000_000),
            claim_timeout_us: Some(3_000_000),
            visibility_timeout_us: Some(4_000_000),
            fails_with_worker: true,
            queue: "money".to_owned(),
            priority: -7,
            limits,
        }
    }

    #[test]
    fn all_that_a_message_says_can_be_said_in_json() {
        let plain = |name: &str, kind: v1::TaskKind, sleep_us| v1::Task {
            name: name.to_owned(),
            kind: kind.into(),
            sleep_us,
            ..v1::Task::default()
        };
        let mut tasks = vec![
            plain("pause", v1::TaskKind::Sleep, Some(8_000_000)),
            plain("tell", v1::TaskKind::OnFailure, None),
            full_task(),
        ];
        for (number, trigger) in
            [v1::Trigger::AnyFailed, v1::Trigger::AllFinished].iter().enumerate()
        {
            let task = plain(&number.to_string(), v1::TaskKind::Handler, None);
            let parents = vec!["charge".to_owned()];
            tasks.push(v1::Task { trigger: (*trigger).into(), parents, ..task });
        }
        let (name, timeout_us) = ("order".to_owned(), Some(60_000_000));
        let message = v1::Definition { name, version: 3, timeout_us, tasks };
        let definition = Arc::<Definition>::from_wire(message).unwrap();
        let text = serde_json::to_string(&DefinitionBody::from(&*definition)).unwrap();
        let again = build(&text).unwrap();
        assert_eq!(again.to_wire(), definition.to_wire(), "{text}");
    }

    #[test]
    fn a_limit_bounds_one_thing() {
        let with = |limit: &str| {
            let text = format!(r#"{{"name":"w","tasks":[{{"name":"a","limits":[{limit}]}}]}}"#);
            build(&text)
        };
        for limit in ["{}", r#"{"slots":1,"rate":{"count":1,"per_ms":5}}"#] {
            let error = with(limit).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Definition);
            assert!(error.detail().contains("exactly one of slots, rate"), "{error:?}");
        }
        let rate = with(r#"{"rate":{"count":100,"per_ms":60000},"field":"provider"}"#).unwrap();
        let same = windlass::Limit::rate(100, Duration::from_secs(60)).by("provider");
        assert_eq!(rate.tasks()[0].limits[0].bound, same.bound);
        let error = with(r#"{"rate":{"count":0,"per_ms":1}}"#).unwrap_err();
        assert!(error.detail().contains("0 tokens"), "{error:?}");
        let error = with(r#"{"debounce":{"quiet_ms":5},"halts":true}"#).unwrap_err();
        assert!(error.detail().contains("has no slots"), "{error:?}");
    }

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
