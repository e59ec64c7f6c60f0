//! Workflows as messages.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::definition::{DefinitionDraft, TaskDraft};
use windlass_core::lane::{Bound, Breaker, Debounce, LimitScope, Rate};
use windlass_core::{
    Definition, LaneLimit, Limit, LimitName, QueueName, RetryError, RetryPolicy, TaskIndex,
    TaskKind, TaskName, TaskSpec, Trigger, WhenFull, WorkerLost,
};

use super::{
    Wire, WireError, micros, name, priority, read_all, read_some, required, unknown, v1, version,
    write_all,
};

impl Wire for Arc<Definition> {
    type Message = v1::Definition;

    fn to_wire(&self) -> v1::Definition {
        let draft = self.to_draft();
        v1::Definition {
            name: draft.name,
            version: draft.version.get(),
            timeout_us: draft.timeout.map(micros),
            tasks: write_all(&draft.tasks),
        }
    }

    fn from_wire(message: v1::Definition) -> Result<Self, WireError> {
        let draft = DefinitionDraft {
            name: message.name,
            version: version(message.version)?,
            timeout: message.timeout_us.map(Duration::from_micros),
            tasks: read_all("tasks", message.tasks)?,
        };
        draft.build().map(Arc::new).map_err(|error| WireError::new("tasks", error))
    }
}

impl Wire for TaskDraft {
    type Message = v1::Task;

    fn to_wire(&self) -> v1::Task {
        let (kind, sleep_us) = write_kind(self.kind);
        v1::Task {
            name: self.name.clone(),
            kind,
            sleep_us,
            parents: self.parents.clone(),
            trigger: self.trigger.to_wire(),
            retry: Some(self.retry.to_wire()),
            timeout_us: self.timeout.map(micros),
            heartbeat_timeout_us: self.heartbeat_timeout.map(micros),
            claim_timeout_us: self.claim_timeout.map(micros),
            visibility_timeout_us: self.visibility_timeout.map(micros),
            fails_with_worker: self.on_worker_lost == WorkerLost::Fail,
            queue: self.queue.clone(),
            priority: self.priority.get().into(),
            limits: write_all(&self.limits),
        }
    }

    fn from_wire(message: v1::Task) -> Result<Self, WireError> {
        let kind = read_kind(message.kind, message.sleep_us)?;
        let draft = TaskDraft::new(message.name, kind);
        let queue = if message.queue.is_empty() { draft.queue.clone() } else { message.queue };
        Ok(TaskDraft {
            parents: message.parents,
            trigger: Trigger::from_wire(message.trigger)?,
            retry: read_some("retry", message.retry)?.unwrap_or_default(),
            timeout: message.timeout_us.map(Duration::from_micros),
            heartbeat_timeout: message.heartbeat_timeout_us.map(Duration::from_micros),
            claim_timeout: message.claim_timeout_us.map(Duration::from_micros),
            visibility_timeout: message.visibility_timeout_us.map(Duration::from_micros),
            on_worker_lost: worker_lost(message.fails_with_worker),
            queue,
            priority: priority(message.priority)?,
            limits: read_all("limits", message.limits)?,
            ..draft
        })
    }
}

fn worker_lost(fails: bool) -> WorkerLost {
    if fails { WorkerLost::Fail } else { WorkerLost::Retry }
}

fn write_kind(kind: TaskKind) -> (i32, Option<u64>) {
    match kind {
        TaskKind::Handler => (v1::TaskKind::Handler.into(), None),
        TaskKind::Sleep(time) => (v1::TaskKind::Sleep.into(), Some(micros(time))),
        TaskKind::OnFailure => (v1::TaskKind::OnFailure.into(), None),
    }
}

fn read_kind(number: i32, sleep_us: Option<u64>) -> Result<TaskKind, WireError> {
    match v1::TaskKind::try_from(number) {
        Ok(v1::TaskKind::Handler) => Ok(TaskKind::Handler),
        Ok(v1::TaskKind::Sleep) => {
            required("sleep_us", sleep_us).map(|time| TaskKind::Sleep(Duration::from_micros(time)))
        }
        Ok(v1::TaskKind::OnFailure) => Ok(TaskKind::OnFailure),
        Err(_) => Err(unknown("kind", number)),
    }
}

impl Wire for Trigger {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        let trigger = match self {
            Trigger::AllSucceeded => v1::Trigger::AllSucceeded,
            Trigger::AllFinished => v1::Trigger::AllFinished,
            Trigger::AnyFailed => v1::Trigger::AnyFailed,
            Trigger::NoneFailed => v1::Trigger::NoneFailed,
        };
        trigger.into()
    }

    fn from_wire(number: i32) -> Result<Self, WireError> {
        match v1::Trigger::try_from(number) {
            Ok(v1::Trigger::AllSucceeded) => Ok(Trigger::AllSucceeded),
            Ok(v1::Trigger::AllFinished) => Ok(Trigger::AllFinished),
            Ok(v1::Trigger::AnyFailed) => Ok(Trigger::AnyFailed),
            Ok(v1::Trigger::NoneFailed) => Ok(Trigger::NoneFailed),
            Err(_) => Err(unknown("trigger", number)),
        }
    }
}

impl Wire for RetryPolicy {
    type Message = v1::RetryPolicy;

    fn to_wire(&self) -> v1::RetryPolicy {
        v1::RetryPolicy {
            attempts: self.attempts,
            first_delay_us: micros(self.first_delay),
            factor: self.factor,
            delay_max_us: micros(self.delay_max),
            jitter: self.jitter,
            non_retryable: self.non_retryable.clone(),
        }
    }

    fn from_wire(message: v1::RetryPolicy) -> Result<Self, WireError> {
        let policy = RetryPolicy {
            attempts: message.attempts,
            first_delay: Duration::from_micros(message.first_delay_us),
            factor: message.factor,
            delay_max: Duration::from_micros(message.delay_max_us),
            jitter: message.jitter,
            non_retryable: message.non_retryable,
        };
        match policy.validate() {
            Ok(()) => Ok(policy),
            Err(error) => {
                let field = match error {
                    RetryError::Attempts(_) => "attempts",
                    RetryError::Factor(_) => "factor",
                    RetryError::Jitter(_) => "jitter",
                    RetryError::FirstDelay { .. } => "first_delay_us",
                    RetryError::DelayMax(_) => "delay_max_us",
                    // The kinds may grow.
                    _ => "retry",
                };
                let why =
                    format!("{error}; set every field of the policy, or leave the policy out");
                Err(WireError::new(field, why))
            }
        }
    }
}

impl Wire for Limit {
    type Message = v1::Limit;

    fn to_wire(&self) -> v1::Limit {
        let bound = match self.bound {
            Bound::Slots(slots) => v1::limit::Bound::Slots(slots),
            Bound::Rate(Rate { count, per, burst }) => {
                v1::limit::Bound::Rate(v1::Rate { count, per_us: micros(per), burst })
            }
            Bound::Debounce(Debounce { quiet, at_most }) => {
                let (quiet_us, at_most_us) = (micros(quiet), micros(at_most));
                v1::limit::Bound::Debounce(v1::Debounce { quiet_us, at_most_us })
            }
            Bound::Breaker(Breaker { percent, calls, window, pause }) => {
                let (window_us, pause_us) = (micros(window), micros(pause));
                v1::limit::Bound::Breaker(v1::Breaker { percent, calls, window_us, pause_us })
            }
        };
        let when_full = match self.when_full {
            WhenFull::Wait => v1::WhenFull::Wait,
            WhenFull::Skip => v1::WhenFull::Skip,
            WhenFull::CancelOldest => v1::WhenFull::CancelOldest,
        };
        v1::Limit {
            name: self.name.clone(),
            field: self.field.clone(),
            bound: Some(bound),
            when_full: when_full.into(),
            is_across_tenants: self.scope == LimitScope::Everyone,
            halts: self.halts,
            is_owned: self.is_owned,
        }
    }

    fn from_wire(message: v1::Limit) -> Result<Self, WireError> {
        let mut limit = Limit::of(1);
        limit.bound = match required("bound", message.bound)? {
            v1::limit::Bound::Slots(slots) => Bound::Slots(slots),
            v1::limit::Bound::Rate(v1::Rate { count, per_us, burst }) => {
                Bound::Rate(Rate { count, per: Duration::from_micros(per_us), burst })
            }
            v1::limit::Bound::Debounce(v1::Debounce { quiet_us, at_most_us }) => {
                let at_most = Duration::from_micros(at_most_us);
                Bound::Debounce(Debounce { quiet: Duration::from_micros(quiet_us), at_most })
            }
            v1::limit::Bound::Breaker(v1::Breaker { percent, calls, window_us, pause_us }) => {
                let window = Duration::from_micros(window_us);
                let pause = Duration::from_micros(pause_us);
                Bound::Breaker(Breaker { percent, calls, window, pause })
            }
        };
        limit.when_full = match v1::WhenFull::try_from(message.when_full) {
            Ok(v1::WhenFull::Wait) => WhenFull::Wait,
            Ok(v1::WhenFull::Skip) => WhenFull::Skip,
            Ok(v1::WhenFull::CancelOldest) => WhenFull::CancelOldest,
            Err(_) => return Err(unknown("when_full", message.when_full)),
        };
        limit.scope =
            if message.is_across_tenants { LimitScope::Everyone } else { LimitScope::Tenant };
        limit.name = message.name;
        limit.field = message.field;
        limit.halts = message.halts;
        limit.is_owned = message.is_owned;
        Ok(limit)
    }
}

impl Wire for Arc<TaskSpec> {
    type Message = v1::TaskSpec;

    fn to_wire(&self) -> v1::TaskSpec {
        let (kind, sleep_us) = write_kind(self.kind);
        let limits: Vec<Limit> = self.limits.iter().map(LaneLimit::to_draft).collect();
        let task = v1::Task {
            name: self.name.as_str().to_owned(),
            kind,
            sleep_us,
            parents: Vec::new(),
            trigger: self.trigger.to_wire(),
            retry: Some(self.retry.to_wire()),
            timeout_us: self.timeout.map(micros),
            heartbeat_timeout_us: self.heartbeat_timeout.map(micros),
            claim_timeout_us: self.claim_timeout.map(micros),
            visibility_timeout_us: self.visibility_timeout.map(micros),
            fails_with_worker: self.on_worker_lost == WorkerLost::Fail,
            queue: self.queue.as_str().to_owned(),
            priority: self.priority.get().into(),
            limits: write_all(&limits),
        };
        let parents = self.parents.iter().map(|parent| parent.0).collect();
        v1::TaskSpec { task: Some(task), parents }
    }

    fn from_wire(message: v1::TaskSpec) -> Result<Self, WireError> {
        let task = required("task", message.task)?;
        let draft = TaskDraft::from_wire(task).map_err(|error| error.within("task"))?;
        let limit = |limit: &Limit| -> Result<LaneLimit, WireError> {
            let limit_name = limit.name.as_deref().unwrap_or_default();
            Ok(LaneLimit {
                name: name("task.limits.name", LimitName::new(limit_name))?,
                field: limit.field.clone(),
                bound: limit.bound,
                when_full: limit.when_full,
                scope: limit.scope,
                halts: limit.halts,
                is_owned: limit.is_owned,
            })
        };
        Ok(Arc::new(TaskSpec {
            name: name("task.name", TaskName::new(&draft.name))?,
            kind: draft.kind,
            parents: message.parents.into_iter().map(TaskIndex).collect(),
            trigger: draft.trigger,
            retry: draft.retry,
            timeout: draft.timeout,
            heartbeat_timeout: draft.heartbeat_timeout,
            claim_timeout: draft.claim_timeout,
            visibility_timeout: draft.visibility_timeout,
            on_worker_lost: draft.on_worker_lost,
            queue: name("task.queue", QueueName::new(&draft.queue))?,
            priority: draft.priority,
            limits: draft.limits.iter().map(limit).collect::<Result<_, _>>()?,
        }))
    }
}
