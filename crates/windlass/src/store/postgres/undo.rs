//! Runs that undo what others did.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{
    EventBody, Fence, RunCommand, RunEvent, RunEventKind, RunId, RunState, TaskState, TraceContext,
    Undoing,
};

use super::PostgresStore;
use super::claim::Taken;
use super::fault::Fault;
use super::handout::{Facts, Questions};
use super::pool::{Params, Tx};
use super::statements as sql;
use super::work::{Work, task_id};
use super::writes::Writes;
use crate::store::undo::{
    Undone, is_undone_by_itself, names_no_run, not_ended, nothing_to_undo, undo_cancelled,
    undo_definition,
};
use crate::store::{Held, StoreError, ToUndo};

impl PostgresStore {
    /// Begins to undo the runs that ended in this transaction and are to be undone.
    pub(super) async fn undo_ended(&self, tx: &Tx<'_>, work: &mut Work) -> Result<(), Fault> {
        let is_wanted = |run: &&super::run::Run| {
            let failed = run.tasks.values().filter(|task| task.state == TaskState::Failed);
            let mut failures = failed.filter_map(|task| task.failure.as_ref());
            let keeps_steps = failures.any(windlass_core::Failure::keeps_steps);
            run.is_changed
                && is_undone_by_itself(run.state)
                && !run.definition.is_undo()
                && (run.state == RunState::Cancelled || !keeps_steps)
        };
        let ended: Vec<Uuid> =
            work.runs.values().filter(is_wanted).map(|run| *run.id.as_uuid()).collect();
        if ended.is_empty() {
            return Ok(());
        }
        let leases: Params<'_> = &[&ended];
        let undoable: Params<'_> = &[&ended, &work.moves.interrupted];
        let all = [(&sql::LOCK_LEASES, leases), (&sql::UNDOABLE, undoable)];
        let [_, rows] = tx.query_all(all).await?;
        let mut wanted = Vec::new();
        for row in &rows {
            let id = RunId::from_uuid(row.get("run_id"));
            let delay = Duration::from_micros(row.get::<_, i64>("delay_micros").unsigned_abs());
            let Some(run) = work.runs.get(&id) else { continue };
            if run.state == RunState::Cancelled || !row.get::<_, bool>("keeps_steps") {
                wanted.push((run.definition.name().clone(), id, delay, trace_of(row)));
            }
        }
        // Definitions that are new are locked in the order of their names.
        wanted.sort_by(|(a, one, ..), (b, other, ..)| (a, one).cmp(&(b, other)));
        for (_, run, delay, trace) in wanted {
            self.begin_undo(tx, work, run, delay, trace).await?;
        }
        Ok(())
    }

    pub(super) async fn undo_once(&self, id: RunId) -> Result<RunId, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_run(&tx, id).await?;
        let (state, round) = (work.runs[&id].state, work.runs[&id].round);
        match state {
            RunState::Running => return Err(not_ended(id).into()),
            RunState::Succeeded | RunState::Failed | RunState::Cancelled => {}
        }
        let ids = [*id.as_uuid()].to_vec();
        let by = RunId::of_undo(id, round);
        let undoable: Params<'_> = &[&ids, &work.moves.interrupted];
        let there: Params<'_> = &[by.as_uuid()];
        let all = [(&sql::UNDOABLE, undoable), (&sql::GET_RUN, there)];
        let [undoable, there] = tx.query_all(all).await?;
        if let Some(there) = there.first() {
            return match there.get::<_, &str>("state") {
                "cancelled" => Err(undo_cancelled(id, by).into()),
                _ => Ok(by),
            };
        }
        let Some(undoable) = undoable.first() else { return Err(nothing_to_undo(id).into()) };
        self.begin_undo(&tx, &mut work, id, Duration::ZERO, trace_of(undoable)).await?;
        self.conclude(tx, &mut work).await?;
        Ok(by)
    }

    /// Starts the run that undoes a run that is locked.
    async fn begin_undo(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        id: RunId,
        delay: Duration,
        trace: Option<TraceContext>,
    ) -> Result<(), Fault> {
        let Some(run) = work.runs.get(&id) else { return Ok(()) };
        let (round, tenant, priority) = (run.round, run.tenant.clone(), run.priority);
        let definition = Arc::new(undo_definition(&run.definition)?);
        let start = Undone { run: id, round, tenant, priority, trace }.start(&definition, delay)?;
        let from = run.state;
        let to = from
            .apply(RunCommand::Undo)
            .map_err(|error| StoreError::Corrupt(format!("run {id}: {error}")))?;
        let kind = RunEventKind::Undoing { by: start.id };
        let event = RunEvent { kind, from: Some(from), to };
        work.moves.events.push((id, EventBody::Run(event)));
        let known = self.known_or_new(tx, &definition).await?;
        super::start::begin_one(work, &start, &known)?;
        work.born.push((start, known));
        Ok(())
    }

    pub(super) async fn read_undo_once(&self, held: Held) -> Result<ToUndo, Fault> {
        let (by, index) = (held.task.run, held.task.index.0.cast_signed());
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let fence = held.fence.0.cast_signed();
        let (runs, indices, fences) = ([*by.as_uuid()], [index], [fence]);
        let kept: Params<'_> = &[&&runs[..], &&indices[..], &&fences[..]];
        let run: Params<'_> = &[by.as_uuid()];
        let all = [(&sql::HOLD_LEASES, kept), (&sql::GET_RUN, run), (&sql::CLOCK, &[])];
        let [kept, rows, clock] = tx.query_all(all).await?;
        let Some(row) = rows.first().filter(|_| !kept.is_empty()) else {
            drop(tx);
            drop(connection);
            return Ok(Err(self.refusal(held).await?));
        };
        let undoing = serde_json::from_str::<Undoing>(row.get("input"));
        let undoing = undoing.map_err(|error| names_no_run(by, error))?;
        let at = self.now_of(&clock)?;
        let rows = tx.query(&sql::UNDOABLE_TASKS, &[undoing.run.as_uuid()]).await?;
        let taken = |row: &Row| Taken {
            id: task_id(row),
            definition: row.get("definition_id"),
            route: 0,
            tenant: row.get("tenant_id"),
            slot: (0, 0),
            worker: None,
            fence: Fence(row.get::<_, i64>("fence").cast_unsigned()),
            attempt: row.get::<_, i32>("attempt").cast_unsigned(),
            at,
        };
        let taken: Vec<Taken> = rows.iter().map(taken).collect();
        let names = self.names_of(&tx, &taken).await?;
        let questions = Questions::of_all(&names, &taken);
        let mut writes = Writes::default();
        questions.ask(&mut writes);
        let answers = tx.commit(writes).await?;
        Ok(Ok(Facts::of(names, &questions, &answers).tell_each(&taken)?))
    }
}

/// The trace of a run whose row has both parts of it.
pub(super) fn trace_of(row: &Row) -> Option<TraceContext> {
    let tracestate = row.get::<_, Option<&str>>("tracestate");
    TraceContext::parse(row.get::<_, Option<&str>>("traceparent")?, tracestate).ok()
}
