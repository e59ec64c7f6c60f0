//! Workers, as people see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::store::WorkerRecord;

use super::{IdText, Time, millis};

/// Which workers to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerQuery {
    /// Also those that are dead.
    pub(crate) with_dead: Option<bool>,
    /// Where the previous page ended: its `next`.
    #[param(max_length = 2000)]
    pub(crate) cursor: Option<String>,
    /// The most workers of the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<u32>,
}

/// A page of workers, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkerPage)]
pub(crate) struct WorkerPageBody {
    /// The workers.
    pub(crate) workers: Vec<WorkerBody>,
    /// The cursor of the next page; none if this is the last.
    pub(crate) next: Option<String>,
}

/// One life of a worker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Worker)]
pub(crate) struct WorkerBody {
    /// Its id.
    #[schema(value_type = IdText)]
    id: windlass::WorkerId,
    /// What people call it.
    name: String,
    /// What it is at: live, draining, dying or dead.
    #[schema(value_type = String)]
    state: &'static str,
    /// How many tasks it runs at once.
    slots: u32,
    /// How long after its last heartbeat its tasks are taken away.
    lease_ms: u64,
    /// The workflows and versions it has handlers for.
    workflows: Vec<WorkflowVersion>,
    /// The machine or container it runs on.
    host: String,
    /// The number of its operating-system process.
    pid: Option<u32>,
    /// The version of the program.
    version: String,
    /// The queues it serves.
    queues: Vec<String>,
    /// What else it says of itself.
    metadata: BTreeMap<String, String>,
    /// When it came.
    joined_at: Time,
    /// When it last took tasks or said that it lives; none of a dead one.
    seen_at: Option<Time>,
    /// When it ended, if it has.
    ended_at: Option<Time>,
    /// How many tasks it has.
    tasks: u64,
}

/// A workflow and version.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkflowVersion {
    /// The name of the workflow.
    name: String,
    /// Its version.
    version: u32,
}

impl From<WorkerRecord> for WorkerBody {
    fn from(worker: WorkerRecord) -> Self {
        let workflow = |key: windlass::store::HandlerKey| WorkflowVersion {
            name: key.workflow.to_string(),
            version: key.version.get(),
        };
        let info = worker.info;
        WorkerBody {
            id: worker.id,
            name: worker.name,
            state: worker.state.word(),
            slots: worker.slots,
            lease_ms: millis(worker.lease),
            workflows: worker.workflows.into_iter().map(workflow).collect(),
            host: info.host,
            pid: info.pid,
            version: info.version,
            queues: info.queues.iter().map(ToString::to_string).collect(),
            metadata: info.metadata,
            joined_at: worker.joined_at.into(),
            seen_at: worker.seen_at.map(Time),
            ended_at: worker.ended_at.map(Time),
            tasks: worker.tasks,
        }
    }
}
