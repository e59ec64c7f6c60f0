//! Reading without changing.

use std::ops::Bound;

use windlass_core::why::SILENT_MAX;
use windlass_core::{Definition, Event, EventId, RunId, TaskIndex, TaskName};

use super::run::Run;
use super::state::State;
use crate::store::{
    PAGE_MAX, RunCursor, RunFilter, RunPage, RunRecord, TaskRecord, WorkerCursor, WorkerFilter,
    WorkerPage, WorkerRecord, WorkerState, WorkflowFilter, WorkflowPage, WorkflowRecord,
};

impl State {
    pub(super) fn get_run(&self, run: RunId) -> Option<RunRecord> {
        self.runs.get(&run).map(Run::record)
    }

    pub(super) fn list_tasks(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Vec<TaskRecord> {
        let Some(run) = self.runs.get(&run) else { return Vec::new() };
        let indices = run.definition.indices().filter(|index| Some(*index) > after);
        indices.take(limit.min(PAGE_MAX)).map(|index| run.task_record(index)).collect()
    }

    pub(super) fn get_task(&self, run: RunId, name: &TaskName) -> Option<TaskRecord> {
        let run = self.runs.get(&run)?;
        Some(run.task_record(run.definition.index_of(name.as_str())?))
    }

    pub(super) fn list_events(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Vec<Event> {
        let Some(run) = self.runs.get(&run) else { return Vec::new() };
        let first = run.events.partition_point(|event| Some(event.id) <= after);
        run.events[first..].iter().take(limit.min(PAGE_MAX)).cloned().collect()
    }

    pub(super) fn list_runs(&self, filter: &RunFilter) -> RunPage {
        let limit = match filter.limit {
            0 => PAGE_MAX,
            limit => limit.min(PAGE_MAX),
        };
        let after = filter.after.map(|cursor| (cursor.created_at, cursor.id));
        let before = after.map_or(Bound::Unbounded, Bound::Excluded);
        let newest_first = self.by_age.range((Bound::Unbounded, before)).rev();
        let mut matching =
            newest_first.filter_map(|(_, id)| self.runs.get(id)).filter(|run| matches(filter, run));
        let runs: Vec<RunRecord> = matching.by_ref().take(limit).map(Run::listed).collect();
        let has_more = matching.next().is_some();
        let last = runs.last().filter(|_| has_more);
        let next = last.map(|run| RunCursor { created_at: run.created_at, id: run.id });
        RunPage { runs, next }
    }

    pub(super) fn list_workers(&self, filter: &WorkerFilter) -> WorkerPage {
        let limit = match filter.limit {
            0 => PAGE_MAX,
            limit => limit.min(PAGE_MAX),
        };
        let age =
            |worker: &WorkerRecord| WorkerCursor { joined_at: worker.joined_at, id: worker.id };
        let is_wanted = |worker: &&WorkerRecord| {
            let is_behind = filter.after.is_none_or(|after| age(worker) < after);
            is_behind && (filter.with_dead || worker.state != WorkerState::Dead)
        };
        let mut found: Vec<&WorkerRecord> =
            self.shared.registry.values().filter(is_wanted).collect();
        found.sort_by_key(|worker| std::cmp::Reverse(age(worker)));
        let has_more = found.len() > limit;
        let page = found.into_iter().take(limit).map(|worker| self.worker_record(worker));
        let workers: Vec<WorkerRecord> = page.collect();
        let next = workers.last().filter(|_| has_more).map(age);
        WorkerPage { workers, next }
    }

    pub(super) fn list_workflows(&self, filter: &WorkflowFilter) -> WorkflowPage {
        let place = |definition: &Definition| {
            (definition.name().clone(), std::cmp::Reverse(definition.version()))
        };
        let after = filter.after.as_ref();
        let after = after.map(|after| (after.name.clone(), std::cmp::Reverse(after.version)));
        let is_wanted = |known: &&WorkflowRecord| {
            filter.name.as_ref().is_none_or(|name| name == known.definition.name())
                && after.as_ref().is_none_or(|after| place(&known.definition) > *after)
        };
        let mut found: Vec<WorkflowRecord> =
            self.definitions.values().filter(is_wanted).cloned().collect();
        found.sort_by_key(|known| place(&known.definition));
        WorkflowPage::cut(found, filter.most())
    }

    /// A worker with what changes all the time.
    fn worker_record(&self, worker: &WorkerRecord) -> WorkerRecord {
        let Some(live) = self.shared.workers.get(&worker.id) else { return worker.clone() };
        let is_silent = live.lease_until + SILENT_MAX <= self.shared.now;
        let state = if live.is_dead || is_silent { WorkerState::Dying } else { worker.state };
        WorkerRecord { state, tasks: live.tasks.len() as u64, ..worker.clone() }
    }
}

fn matches(filter: &RunFilter, run: &Run) -> bool {
    let RunFilter { workflow, tenant, state, metadata, after: _, limit: _ } = filter;
    workflow.as_ref().is_none_or(|name| name == run.definition.name())
        && tenant.as_ref().is_none_or(|tenant| *tenant == run.tenant)
        && state.is_none_or(|state| state == run.state)
        && metadata.as_ref().is_none_or(|(key, value)| run.metadata.get(key) == Some(value))
}
