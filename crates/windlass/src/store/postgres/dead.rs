//! Tasks that failed for good, and what operators do about them.
//!
//! A row is written with the failure of its task and goes with the retry or the cancel of its run,
//! always under the lock of the run. A batch of an operator's begins its entry in the log first,
//! which keeps out whoever asks for the same a second time, and then locks the runs in the order
//! of their ids.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;
use windlass_core::{
    Failure, FailureCode, LaneId, LaneKey, LimitName, QueueName, RunId, RunState, TaskId, TaskName,
    Tenant, Version, WorkflowName,
};

use super::PostgresStore;
use super::fault::Fault;
use super::pool::Tx;
use super::statements as sql;
use super::time::At;
use super::unsound;
use super::work::{Work, corrupt, pairs, task_id};
use super::writes::{Param, Writes, params};
use crate::store::dead::{batch_limit, filter_detail, not_discarded};
use crate::store::undo::was_undone;
use crate::store::{
    Action, DeadLetter, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded,
    PAGE_MAX, REDRIVE_TASKS_MAX, Redrive, Redriven, RefusedRun, StoreError, wrong_state,
};

impl Work {
    /// Writes down the tasks that failed for good, and forgets those that go on.
    pub(super) fn write_dead_letters(&self, writes: &mut Writes<'_>) -> Result<(), Fault> {
        if !self.moves.revived.is_empty() {
            let (runs, indices) = pairs(&self.moves.revived);
            writes.push(&sql::DELETE_DEAD_LETTERS, params![runs, indices]);
        }
        if self.moves.died.is_empty() {
            return Ok(());
        }
        let mut columns = Columns::default();
        for id in &self.moves.died {
            let Some(run) = self.runs.get(&id.run) else { continue };
            // The same verb may have cancelled the run.
            if run.state == RunState::Cancelled {
                continue;
            }
            let task = self.task(*id).ok_or_else(|| corrupt(*id, "it is not loaded"))?;
            let failure = task.failure.as_ref();
            let failure = failure.ok_or_else(|| corrupt(*id, "it failed and does not say why"))?;
            let spec = run.definition.task(id.index);
            columns.runs.push(*id.run.as_uuid());
            columns.indices.push(id.index.0.cast_signed());
            columns.rounds.push(run.round.cast_signed());
            columns.versions.push(run.definition.version().get().cast_signed());
            columns.attempts.push(task.attempt.cast_signed());
            columns.tenants.push(run.tenant.as_str().to_owned());
            columns.workflows.push(run.definition.name().as_str().to_owned());
            columns.tasks.push(spec.name.as_str().to_owned());
            columns.queues.push(spec.queue.as_str().to_owned());
            columns.reasons.push(failure.code.word().to_owned());
            let failure = serde_json::to_string(failure);
            columns.failures.push(failure.map_err(|error| corrupt(*id, error))?);
            let needs = run.lane_keys.needs(&run.definition, &run.tenant, id.index);
            columns.lanes.push(lanes_text(needs.into_iter().map(|need| need.lane)));
        }
        if columns.runs.is_empty() {
            return Ok(());
        }
        let Columns { runs, indices, rounds, versions, attempts, .. } = columns;
        let Columns { tenants, workflows, tasks, queues, reasons, failures, lanes, .. } = columns;
        let params = params![
            runs,
            indices,
            rounds,
            versions,
            attempts,
            At(self.now),
            tenants,
            workflows,
            tasks,
            queues,
            reasons,
            failures,
            lanes,
        ];
        writes.push(&sql::INSERT_DEAD_LETTERS, params);
        Ok(())
    }
}

/// The columns of dead letters.
#[derive(Default)]
struct Columns {
    runs: Vec<Uuid>,
    indices: Vec<i32>,
    rounds: Vec<i32>,
    versions: Vec<i32>,
    attempts: Vec<i32>,
    tenants: Vec<String>,
    workflows: Vec<String>,
    tasks: Vec<String>,
    queues: Vec<String>,
    reasons: Vec<String>,
    failures: Vec<String>,
    lanes: Vec<Option<String>>,
}

/// A lane as it is stored.
#[derive(Deserialize)]
struct StoredLane {
    limit: LimitName,
    tenant: Option<Tenant>,
    key: Option<LaneKey>,
}

fn lanes_text(lanes: impl Iterator<Item = LaneId>) -> Option<String> {
    let lanes: Vec<serde_json::Value> = lanes
        .map(|lane| json!({ "limit": lane.limit, "tenant": lane.tenant, "key": lane.key }))
        .collect();
    (!lanes.is_empty()).then(|| serde_json::Value::Array(lanes).to_string())
}

fn letter(row: &Row) -> Result<DeadLetter, Fault> {
    let task = task_id(row);
    let text = |column: &str| row.get::<_, &str>(column);
    let wrong = |error: String| StoreError::Corrupt(format!("the dead letter of {task}: {error}"));
    let name = |error: windlass_core::NameError| wrong(error.to_string());
    let version = Version::new(row.get::<_, i32>("version").cast_unsigned());
    let failure: Result<Failure, _> = serde_json::from_str(text("failure"));
    let lanes: Option<&str> = row.get("lanes");
    let lanes: Result<Vec<StoredLane>, _> = serde_json::from_str(lanes.unwrap_or("[]"));
    let lane = |StoredLane { limit, tenant, key }| LaneId { limit, tenant, key };
    Ok(DeadLetter {
        task,
        name: TaskName::new(text("task")).map_err(name)?,
        round: row.get::<_, i32>("round").cast_unsigned(),
        tenant: Tenant::new(text("tenant")).map_err(name)?,
        workflow: WorkflowName::new(text("workflow")).map_err(name)?,
        version: version.ok_or_else(|| wrong("its version is 0".to_owned()))?,
        queue: QueueName::new(text("queue")).map_err(name)?,
        failure: failure.map_err(|error| wrong(error.to_string()))?,
        attempts: row.get::<_, i32>("attempts").cast_unsigned(),
        lanes: lanes.map_err(|error| wrong(error.to_string()))?.into_iter().map(lane).collect(),
        failed_at: row.get::<_, At>("failed_at").0,
    })
}

/// Which dead letters are asked for, as the parameters of the two statements that list them; none
/// if none can match, since a text with a NUL cannot even be sent.
fn terms(
    filter: &DeadLetterFilter,
    after: Option<DeadLetterCursor>,
    limit: usize,
) -> Option<Vec<Param<'_>>> {
    let reason = filter.reason.as_ref().map(FailureCode::word);
    if reason.is_some_and(|reason| reason.contains('\0')) {
        return None;
    }
    Some(params![
        filter.tenant.as_ref().map(Tenant::as_str),
        filter.workflow.as_ref().map(WorkflowName::as_str),
        filter.task.as_ref().map(TaskName::as_str),
        reason,
        filter.since.map(At),
        filter.until.map(At),
        after.map(|after| At(after.failed_at)),
        after.map(|after| *after.task.run.as_uuid()),
        after.map(|after| i64::from(after.task.index.0)),
        i64::try_from(limit).unwrap_or(i64::MAX),
    ])
}

fn lent<'a>(params: &'a [Param<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

fn letters(rows: &[Row]) -> Result<Vec<DeadLetter>, Fault> {
    rows.iter().map(letter).collect()
}

impl PostgresStore {
    pub(super) async fn list_dead_letters_once(
        &self,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, Fault> {
        let limit = limit.min(PAGE_MAX);
        let mut found = match filter.run {
            Some(run) => {
                let rows = self.read(&sql::DEAD_LETTERS_OF_RUN, &[run.as_uuid()]).await?;
                let mut found = letters(&rows)?;
                let is_behind = |one: &DeadLetter| after.is_none_or(|after| one.cursor() < after);
                found.retain(|one| filter.matches(one) && is_behind(one));
                found.sort_by_key(|one| std::cmp::Reverse(one.cursor()));
                found
            }
            None => match terms(filter, after, limit + 1) {
                Some(terms) => {
                    let what = "the list of dead letters";
                    let reads = &self.reads;
                    letters(&reads.query(what, &sql::LIST_DEAD_LETTERS, &lent(&terms)).await?)?
                }
                None => Vec::new(),
            },
        };
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| has_more).map(DeadLetter::cursor);
        Ok(DeadLetterPage { letters: found, next })
    }

    /// The first of a filter behind a place, the oldest first, and whether there are more.
    async fn batch(
        &self,
        tx: &Tx<'_>,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<(Vec<TaskAndCursor>, bool), Fault> {
        let mut found = match filter.run {
            Some(run) => {
                let rows = tx.query(&sql::DEAD_LETTERS_OF_RUN, &[run.as_uuid()]).await?;
                let mut found = letters(&rows)?;
                let is_behind = |one: &DeadLetter| after.is_none_or(|after| one.cursor() > after);
                found.retain(|one| filter.matches(one) && is_behind(one));
                found.sort_by_key(DeadLetter::cursor);
                found
            }
            None => match terms(filter, after, limit + 1) {
                Some(terms) => letters(&tx.query(&sql::OLDEST_DEAD_LETTERS, &lent(&terms)).await?)?,
                None => Vec::new(),
            },
        };
        let has_more = found.len() > limit;
        found.truncate(limit);
        Ok((found.iter().map(|one| (one.task, one.cursor())).collect(), has_more))
    }

    pub(super) async fn redrive_once(&self, redrive: &Redrive) -> Result<Redriven, Fault> {
        let Redrive { id, by, filter, after, limit, pace } = redrive;
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let action = Action::Redrive;
        if !self.begin_action(&tx, *id, by, action, filter.tenant.as_ref()).await? {
            return self.repeated(&tx, *id, action).await;
        }
        let (batch, has_more) = self.batch(&tx, filter, *after, batch_limit(*limit)).await?;
        let mut work = self.lock_runs(&tx, batch.iter().map(|(task, _)| task.run)).await?;
        let still_dead = still_dead(&tx, &batch).await?;
        let undone = undone(&tx, &work).await?;
        let now = work.now;
        let (mut answer, mut delays) = (Redriven::default(), Vec::new());
        let (mut seen, mut tasks, mut last) = (BTreeSet::new(), 0, None);
        for (task @ TaskId { run, .. }, cursor) in &batch {
            if still_dead.contains(task) && !seen.contains(run) {
                let known = work.runs.get(run);
                let more = known.map_or(0, |run| run.definition.tasks().len());
                if last.is_some() && tasks + more > REDRIVE_TASKS_MAX {
                    break;
                }
                tasks += more;
                seen.insert(*run);
                let delay = pace.map_or(Duration::ZERO, |pace| {
                    (pace.start(now) + pace.offset(answer.runs.len())).since(now)
                });
                match known.map(|known| (known.state, known.round)) {
                    None => {}
                    Some(_) if self.unsound.has(*run) => {
                        let why = format!("run {run} contradicts itself, see windlass audit");
                        answer.refused.push(RefusedRun { run: *run, why });
                    }
                    Some((RunState::Failed, round)) => {
                        let by = RunId::of_undo(*run, round);
                        if undone.contains(&by) {
                            let why = was_undone(*run, by).to_string();
                            answer.refused.push(RefusedRun { run: *run, why });
                        } else {
                            delays.push(delay);
                            answer.runs.push(*run);
                        }
                    }
                    Some((
                        state @ (RunState::Running | RunState::Succeeded | RunState::Cancelled),
                        _,
                    )) => {
                        let why = wrong_state(*run, state, "failed", "retried").to_string();
                        answer.refused.push(RefusedRun { run: *run, why });
                    }
                }
            }
            last = Some(*cursor);
        }
        let all: Vec<TaskId> = answer.runs.iter().flat_map(|run| work.tasks_of(*run)).collect();
        work.load(&tx, all).await?;
        for (run, delay) in answer.runs.iter().zip(delays) {
            work.begin_round(*run, delay).map_err(unsound::of(*run))?;
        }
        let is_cut = batch.last().map(|(_, cursor)| cursor) != last.as_ref();
        answer.next = last.filter(|_| has_more || is_cut);
        answer.due = pace.map(|pace| pace.start(now) + pace.offset(answer.runs.len()));
        let detail = json!({
            "filter": filter_detail(filter),
            "per_second": pace.map(|pace| pace.per_second.get()),
            "answer": &answer,
        });
        self.settle_lanes(&tx, &mut work).await?;
        let mut writes = work.writes(tx.names())?;
        for run in answer.runs.iter().filter(|run| run.may_be_child()) {
            writes.push(&sql::REOPEN_CHILD, params![*run.as_uuid()]);
            // A sweep beside this may take it for ended after all, and the next one looks again.
            writes.push(&sql::NOTE_ENDS, params![vec![*run.as_uuid()]]);
        }
        let runs: Vec<Uuid> = answer.runs.iter().map(|run| *run.as_uuid()).collect();
        writes.push(&sql::END_ACTION, params![*id.as_uuid(), At(now), runs, detail.to_string()]);
        self.conclude_with(tx, &work, writes).await?;
        Ok(answer)
    }

    pub(super) async fn discard_once(&self, discard: &Discard) -> Result<Discarded, Fault> {
        let Discard { id, by, filter, after, limit } = discard;
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let action = Action::Discard;
        if !self.begin_action(&tx, *id, by, action, filter.tenant.as_ref()).await? {
            return self.repeated(&tx, *id, action).await;
        }
        let (batch, has_more) = self.batch(&tx, filter, *after, batch_limit(*limit)).await?;
        let mut work = self.lock_runs(&tx, batch.iter().map(|(task, _)| task.run)).await?;
        let still_dead = still_dead(&tx, &batch).await?;
        let mut answer = Discarded::default();
        let mut seen = BTreeSet::new();
        for (task, _) in batch.iter().filter(|(task, _)| still_dead.contains(task)) {
            let run = task.run;
            let state = work.runs.get(&run).map_or(RunState::Failed, |run| run.state);
            let is_new = seen.insert(run);
            match not_discarded(run, state) {
                Some(why) if is_new => answer.refused.push(RefusedRun { run, why }),
                Some(_) => {}
                None => {
                    work.moves.revived.push(*task);
                    // Those that halt their streams have slots.
                    work.moves.vacated.push(*task);
                    answer.letters += 1;
                    answer.runs.extend(is_new.then_some(run));
                }
            }
        }
        answer.next = batch.last().map(|(_, cursor)| *cursor).filter(|_| has_more);
        let detail = json!({ "filter": filter_detail(filter), "answer": &answer });
        self.settle_lanes(&tx, &mut work).await?;
        let mut writes = work.writes(tx.names())?;
        let runs: Vec<Uuid> = answer.runs.iter().map(|run| *run.as_uuid()).collect();
        let end = params![*id.as_uuid(), At(work.now), runs, detail.to_string()];
        writes.push(&sql::END_ACTION, end);
        self.conclude_with(tx, &work, writes).await?;
        Ok(answer)
    }
}

/// A task of a batch, and its place.
type TaskAndCursor = (TaskId, DeadLetterCursor);

/// Those of a batch that are dead letters still, once their runs are locked.
async fn still_dead(tx: &Tx<'_>, batch: &[TaskAndCursor]) -> Result<BTreeSet<TaskId>, Fault> {
    if batch.is_empty() {
        return Ok(BTreeSet::new());
    }
    let (runs, indices) = pairs(batch.iter().map(|(task, _)| task));
    let rows = tx.query(&sql::STILL_DEAD, &[&runs, &indices]).await?;
    Ok(rows.iter().map(task_id).collect())
}

/// The runs that undo any of the failed ones that are locked.
async fn undone(tx: &Tx<'_>, work: &Work) -> Result<BTreeSet<RunId>, Fault> {
    let failed = work.runs.values().filter(|run| run.state == RunState::Failed);
    let ids: Vec<Uuid> = failed.map(|run| *RunId::of_undo(run.id, run.round).as_uuid()).collect();
    if ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = tx.query(&sql::PRESENT_RUNS, &[&ids]).await?;
    Ok(rows.iter().map(|row| RunId::from_uuid(row.get("id"))).collect())
}
