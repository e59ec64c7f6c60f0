//! The verbs of clients, said to a server.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::{
    ActionId, Call, CandidateId, Definition, Event, EventId, RunId, RunState, StepRecord, TaskId,
    TaskIndex, TaskName, Tenant, Timestamp, Weight, Why, WorkflowName,
};
use windlass_proto::v1;

use super::{RemoteStore, ask};
use crate::store::{
    ArchivedRun, Candidacy, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded,
    HintSender, Hints, LeaderRecord, LogFilter, LogPage, Mandate, NewKeySignal, NewLogEntry,
    NewRun, NewSignal, Outlook, Redrive, Redriven, RetentionRule, RunFilter, RunPage, RunRecord,
    Standing, Started, Store, StoreError, Sweep, Tallies, TaskRecord, WorkerFilter, WorkerPage,
    WorkflowFilter, WorkflowPage,
};
use crate::wire::{Wire, limit as most, parse, read_all, read_some, read_why, time, write_all};

#[async_trait]
impl Store for RemoteStore {
    async fn register(&self, definition: Arc<Definition>) -> Result<(), StoreError> {
        let definition = Some(definition.to_wire());
        let v1::Done {} =
            ask!(self, register_workflow, v1::RegisterWorkflowRequest { definition })?;
        Ok(())
    }

    async fn start_runs(
        &self,
        runs: Vec<NewRun>,
    ) -> Result<Vec<Result<Started, StoreError>>, StoreError> {
        let asked = runs.len();
        let request = v1::StartRunsRequest { runs: write_all(&runs) };
        let answers = read_all("answers", ask!(self, start_runs, request)?.answers)?;
        if answers.len() != asked {
            let text = format!("{} answers to {asked} starts", answers.len());
            return Err(StoreError::Corrupt(text));
        }
        Ok(answers)
    }

    async fn lead(&self, candidacy: Candidacy) -> Result<Standing, StoreError> {
        self.own("lead")?.lead(candidacy).await
    }

    async fn resign(&self, candidate: CandidateId, tallies: Tallies) -> Result<(), StoreError> {
        self.own("resign")?.resign(candidate, tallies).await
    }

    async fn sweep(&self, mandate: Mandate, limit: usize) -> Result<Sweep, StoreError> {
        self.own("sweep")?.sweep(mandate, limit).await
    }

    async fn outlook(&self) -> Result<Outlook, StoreError> {
        self.own("outlook")?.outlook().await
    }

    async fn list_leaders(&self) -> Result<Vec<LeaderRecord>, StoreError> {
        let reply = ask!(self, list_leaders, v1::ListLeadersRequest {})?;
        Ok(read_all("leaders", reply.leaders)?)
    }

    /// There are none: what was given up is found by asking.
    fn leader_hints(&self) -> Hints {
        match self.own("leader_hints") {
            Ok(store) => store.leader_hints(),
            Err(_) => HintSender::new().subscribe(),
        }
    }

    async fn promote_due(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.own("promote_due")?.promote_due(limit).await
    }

    async fn reap(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.own("reap")?.reap(limit).await
    }

    async fn prune(&self, limit: usize) -> Result<Sweep, StoreError> {
        self.own("prune")?.prune(limit).await
    }

    async fn set_retention(&self, rule: RetentionRule) -> Result<(), StoreError> {
        let v1::Done {} = ask!(self, set_retention, rule.to_wire())?;
        Ok(())
    }

    async fn clear_retention(
        &self,
        workflow: Option<WorkflowName>,
        state: RunState,
    ) -> Result<bool, StoreError> {
        let workflow = workflow.map(|workflow| workflow.to_string());
        let request = v1::ClearRetentionRequest { workflow, state: state.to_wire() };
        Ok(ask!(self, clear_retention, request)?.was_there)
    }

    async fn list_retention(&self) -> Result<Vec<RetentionRule>, StoreError> {
        let reply = ask!(self, list_retention, v1::ListRetentionRequest {})?;
        Ok(read_all("rules", reply.rules)?)
    }

    async fn get_archived_run(&self, run: RunId) -> Result<Option<ArchivedRun>, StoreError> {
        let request = v1::GetArchivedRunRequest { run: run.to_string() };
        Ok(read_some("run", ask!(self, get_archived_run, request)?.run)?)
    }

    async fn cancel_run(&self, run: RunId, reason: Option<String>) -> Result<(), StoreError> {
        let request = v1::CancelRunRequest { run: run.to_string(), reason };
        let v1::Done {} = ask!(self, cancel_run, request)?;
        Ok(())
    }

    async fn retry_run(&self, run: RunId, round: u32) -> Result<u32, StoreError> {
        let request = v1::RetryRunRequest { run: run.to_string(), round };
        Ok(ask!(self, retry_run, request)?.round)
    }

    async fn undo_run(&self, run: RunId) -> Result<RunId, StoreError> {
        let reply = ask!(self, undo_run, v1::UndoRunRequest { run: run.to_string() })?;
        Ok(parse("run", &reply.run)?)
    }

    async fn list_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, StoreError> {
        let request = v1::ListDeadLettersRequest {
            filter: Some(filter.to_wire()),
            after: after.as_ref().map(Wire::to_wire),
            limit: Some(most(limit)),
        };
        Ok(Wire::from_wire(ask!(self, list_dead_letters, request)?)?)
    }

    async fn redrive(&self, redrive: Redrive) -> Result<Redriven, StoreError> {
        Ok(Wire::from_wire(ask!(self, redrive_dead_letters, redrive.to_wire())?)?)
    }

    async fn discard(&self, discard: Discard) -> Result<Discarded, StoreError> {
        Ok(Wire::from_wire(ask!(self, discard_dead_letters, discard.to_wire())?)?)
    }

    async fn log(&self, entry: NewLogEntry) -> Result<ActionId, StoreError> {
        // The server does, when it is asked for what this is about.
        Ok(entry.id)
    }

    fn keeps_log(&self) -> bool {
        true
    }

    async fn list_log(&self, filter: LogFilter) -> Result<LogPage, StoreError> {
        Ok(Wire::from_wire(ask!(self, list_log, filter.to_wire())?)?)
    }

    async fn signal(&self, signal: NewSignal) -> Result<(), StoreError> {
        let v1::Done {} = ask!(self, signal_run, signal.to_wire())?;
        Ok(())
    }

    async fn signal_key(&self, signal: NewKeySignal) -> Result<(), StoreError> {
        let v1::Done {} = ask!(self, signal_key, signal.to_wire())?;
        Ok(())
    }

    async fn list_steps(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        let (mut steps, mut last): (Vec<StepRecord>, _) = (Vec::new(), after);
        loop {
            let request = v1::ListStepsRequest {
                task: Some(task.to_wire()),
                after: last.map(|call| call.0),
                limit: Some(most(limit - steps.len())),
            };
            let reply = ask!(self, list_steps, request)?;
            steps.extend(read_all::<StepRecord>("steps", reply.steps)?);
            let reached = steps.last().map(|step| step.call);
            if !reply.has_more || reached <= last || steps.len() >= limit {
                return Ok(steps);
            }
            last = reached;
        }
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        let reply = ask!(self, get_run, v1::GetRunRequest { run: run.to_string() });
        match reply {
            // A server of an earlier version answers without a run.
            Ok(reply) => Ok(read_some("run", reply.run)?),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list_tasks(
        &self,
        run: RunId,
        after: Option<TaskIndex>,
        limit: usize,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let (mut tasks, mut last): (Vec<TaskRecord>, _) = (Vec::new(), after);
        loop {
            let request = v1::ListTasksRequest {
                run: run.to_string(),
                after: last.map(|index| index.0),
                limit: Some(most(limit - tasks.len())),
            };
            let reply = ask!(self, list_tasks, request)?;
            tasks.extend(read_all::<TaskRecord>("tasks", reply.tasks)?);
            let reached = tasks.last().map(|task| task.index);
            if !reply.has_more || reached <= last || tasks.len() >= limit {
                return Ok(tasks);
            }
            last = reached;
        }
    }

    async fn get_task(&self, run: RunId, name: TaskName) -> Result<Option<TaskRecord>, StoreError> {
        let request = v1::GetTaskRequest { run: run.to_string(), name: name.to_string() };
        Ok(read_some("task", ask!(self, get_task, request)?.task)?)
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<RunPage, StoreError> {
        Ok(Wire::from_wire(ask!(self, list_runs, filter.to_wire())?)?)
    }

    async fn list_events(
        &self,
        run: RunId,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let (mut events, mut last): (Vec<Event>, _) = (Vec::new(), after);
        loop {
            let request = v1::ListEventsRequest {
                run: run.to_string(),
                after: last.map(|event| event.0),
                limit: Some(most(limit - events.len())),
            };
            let reply = ask!(self, list_events, request)?;
            events.extend(read_all::<Event>("events", reply.events)?);
            let reached = events.last().map(|event| event.id);
            if !reply.has_more || reached <= last || events.len() >= limit {
                return Ok(events);
            }
            last = reached;
        }
    }

    async fn list_workflows(&self, filter: WorkflowFilter) -> Result<WorkflowPage, StoreError> {
        Ok(Wire::from_wire(ask!(self, list_workflows, filter.to_wire())?)?)
    }

    async fn list_workers(&self, filter: WorkerFilter) -> Result<WorkerPage, StoreError> {
        Ok(Wire::from_wire(ask!(self, list_workers, filter.to_wire())?)?)
    }

    async fn why(&self, run: RunId, task: Option<TaskName>) -> Result<Option<Why>, StoreError> {
        let task = task.map(|task| task.to_string());
        Ok(read_why(ask!(self, why, v1::WhyRequest { run: run.to_string(), task })?)?)
    }

    async fn set_weight(&self, tenant: Tenant, weight: Weight) -> Result<(), StoreError> {
        let weight = weight.get().into();
        let request = v1::SetWeightRequest { tenant: tenant.to_string(), weight };
        let v1::Done {} = ask!(self, set_weight, request)?;
        Ok(())
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(time(ask!(self, get_time, v1::GetTimeRequest {})?.now_us))
    }

    /// There are none: the server does what is due.
    fn timer_hints(&self) -> Hints {
        match self.own("timer_hints") {
            Ok(store) => store.timer_hints(),
            Err(_) => HintSender::new().subscribe(),
        }
    }

    fn run_hints(&self) -> Hints {
        self.runs.subscribe(&self.doors)
    }

    fn gathers_starts(&self) -> bool {
        true
    }

    fn does_duties(&self) -> bool {
        false
    }
}
