//! Writing what a verb changed, in a few statements for all of it.

use std::collections::BTreeSet;

use serde_json::Value;
use uuid::Uuid;
use windlass_core::{EventBody, RunId, TaskId, TaskState, Timestamp};

use super::fault::Fault;
use super::names::{Names, Unnamed};
use super::pool::Tx;
use super::run::{Narrow, Run, Task, is_active};
use super::statements as sql;
use super::time::At;
use super::work::{Work, corrupt, pairs};
use crate::store::StoreError;

/// How many locks the turns of all tenants in all levels share. Two that share one wait for
/// each other for no need; the server's table of locks has room for this many of each of
/// dozens of transactions.
const TURN_LOCKS: i32 = 128;

/// What the columns of an active task are in every narrow table.
#[derive(Default)]
struct Carried {
    runs: Vec<Uuid>,
    indices: Vec<i32>,
    fences: Vec<i64>,
    attempts: Vec<i32>,
    max_attempts: Vec<i32>,
    answered_fences: Vec<Option<i64>>,
    answered_verbs: Vec<Option<&'static str>>,
}

impl Carried {
    fn push(&mut self, run: &Run, id: TaskId, task: &Task) {
        self.runs.push(*id.run.as_uuid());
        self.indices.push(id.index.0.cast_signed());
        self.fences.push(task.fence.0.cast_signed());
        self.attempts.push(task.attempt.cast_signed());
        let max_attempts = run.definition.task(id.index).retry.max_attempts();
        self.max_attempts.push(max_attempts.cast_signed());
        self.answered_fences.push(task.answered.map(|(fence, _)| fence.0.cast_signed()));
        self.answered_verbs.push(task.answered.map(|(_, verb)| verb.word()));
    }
}

impl Work {
    /// Writes everything. The caller commits.
    pub(super) async fn flush(&self, tx: &Tx<'_>, names: &Names) -> Result<(), Fault> {
        self.flush_removals(tx).await?;
        self.flush_tasks(tx).await?;
        self.flush_runs(tx).await?;
        self.flush_timers(tx).await?;
        self.flush_payloads(tx).await?;
        write_events(tx, self.now, &self.moves.events).await?;
        self.flush_put_back(tx).await?;
        // Last, so that the turns are locked for as short a time as can be.
        self.flush_enqueued(tx, names).await
    }

    fn changed(&self) -> impl Iterator<Item = (&Run, TaskId, &Task)> {
        let tasks = |run: &'_ Run| run.id;
        self.runs.values().flat_map(move |run| {
            let id = tasks(run);
            run.tasks
                .iter()
                .map(move |(index, task)| (run, TaskId { run: id, index: *index }, task))
        })
    }

    fn get(&self, id: TaskId) -> Result<(&Run, &Task), Fault> {
        let run = self.runs.get(&id.run).ok_or_else(|| corrupt(id, "its run is not locked"))?;
        let task = run.tasks.get(&id.index).ok_or_else(|| corrupt(id, "it is not loaded"))?;
        Ok((run, task))
    }

    /// Takes tasks out of the narrow tables that have them no more.
    async fn flush_removals(&self, tx: &Tx<'_>) -> Result<(), Fault> {
        let removals = [
            (Narrow::Ready, TaskState::Ready, &sql::DELETE_READY),
            (Narrow::Leases, TaskState::Running, &sql::DELETE_LEASES),
            (Narrow::Timers, TaskState::Scheduled, &sql::DELETE_TIMERS),
        ];
        for (table, state, statement) in removals {
            let is_gone = |task: &Task| task.stored_in == Some(table) && task.state != state;
            let gone: Vec<TaskId> =
                self.changed().filter(|(_, _, task)| is_gone(task)).map(|(_, id, _)| id).collect();
            if gone.is_empty() {
                continue;
            }
            let (runs, indices) = pairs(&gone);
            let deleted = tx.execute(statement, &[&runs, &indices]).await?;
            if deleted != gone.len() as u64 {
                let text = format!("{deleted} of {} tasks were where they stood", gone.len());
                return Err(StoreError::Corrupt(text).into());
            }
        }
        Ok(())
    }

    async fn flush_tasks(&self, tx: &Tx<'_>) -> Result<(), Fault> {
        let mut carried = Carried::default();
        let (mut states, mut failures) = (Vec::new(), Vec::new());
        let (mut pending, mut failed, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        for (run, id, task) in self.changed().filter(|(_, _, task)| task.is_changed) {
            carried.push(run, id, task);
            states.push(if is_active(task.state) { "active" } else { task.state.word() });
            let tally = run.progress.parents(id.index);
            pending.push(tally.pending.cast_signed());
            failed.push(tally.failed.cast_signed());
            skipped.push(tally.skipped.cast_signed());
            let failure = task.failure.as_ref().map(serde_json::to_string).transpose();
            failures.push(failure.map_err(|error| corrupt(id, error))?);
        }
        if carried.runs.is_empty() {
            return Ok(());
        }
        tx.execute(
            &sql::UPDATE_TASKS,
            &[
                &carried.runs,
                &carried.indices,
                &states,
                &carried.fences,
                &carried.attempts,
                &pending,
                &failed,
                &skipped,
                &carried.answered_fences,
                &carried.answered_verbs,
                &failures,
            ],
        )
        .await?;
        Ok(())
    }

    async fn flush_runs(&self, tx: &Tx<'_>) -> Result<(), Fault> {
        let changed: Vec<&Run> = self.runs.values().filter(|run| run.is_changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let open = |run: &&Run| if run.state.is_final() { 0 } else { run.progress.open() };
        let ids: Vec<Uuid> = changed.iter().map(|run| *run.id.as_uuid()).collect();
        let states: Vec<&str> = changed.iter().map(|run| run.state.word()).collect();
        let rounds: Vec<i32> = changed.iter().map(|run| run.round.cast_signed()).collect();
        let open: Vec<i32> = changed.iter().map(|run| open(run).cast_signed()).collect();
        let failed: Vec<i32> =
            changed.iter().map(|run| run.progress.failed().cast_signed()).collect();
        let ends: Vec<Option<At>> = changed.iter().map(|run| run.ended_at.map(At)).collect();
        tx.execute(&sql::UPDATE_RUNS, &[&ids, &states, &rounds, &open, &failed, &ends]).await?;
        Ok(())
    }

    async fn flush_timers(&self, tx: &Tx<'_>) -> Result<(), Fault> {
        if self.moves.scheduled.is_empty() {
            return Ok(());
        }
        let mut carried = Carried::default();
        let mut dues = Vec::new();
        for (id, due) in &self.moves.scheduled {
            let (run, task) = self.get(*id)?;
            carried.push(run, *id, task);
            dues.push(At(*due));
        }
        tx.execute(
            &sql::SCHEDULE,
            &[
                &carried.runs,
                &carried.indices,
                &dues,
                &carried.fences,
                &carried.attempts,
                &carried.max_attempts,
                &carried.answered_fences,
                &carried.answered_verbs,
            ],
        )
        .await?;
        Ok(())
    }

    async fn flush_payloads(&self, tx: &Tx<'_>) -> Result<(), Fault> {
        if !self.moves.reset.is_empty() {
            let (runs, indices) = pairs(&self.moves.reset);
            tx.execute(&sql::DELETE_OUTPUTS, &[&runs, &indices]).await?;
            tx.execute(&sql::DELETE_NOTES, &[&runs, &indices]).await?;
        }
        if !self.moves.outputs.is_empty() {
            let (runs, indices) = pairs(self.moves.outputs.iter().map(|(id, _)| id));
            let outputs: Vec<&str> =
                self.moves.outputs.iter().map(|(_, output)| output.as_str()).collect();
            tx.execute(&sql::INSERT_OUTPUTS, &[&runs, &indices, &outputs]).await?;
        }
        Ok(())
    }

    async fn flush_put_back(&self, tx: &Tx<'_>) -> Result<(), Fault> {
        if self.moves.put_back.is_empty() {
            return Ok(());
        }
        let mut carried = Carried::default();
        let mut places = Places::default();
        let (mut tags, mut ages) = (Vec::new(), Vec::new());
        for id in &self.moves.put_back {
            let (run, task) = self.get(*id)?;
            let place = task.place.ok_or_else(|| corrupt(*id, "nobody knows where it stood"))?;
            carried.push(run, *id, task);
            places.push(run.definition_id, place.lane, place.level, place.tenant);
            tags.push(place.tag);
            ages.push(place.seq);
        }
        tx.execute(
            &sql::PUT_BACK,
            &[
                &carried.runs,
                &carried.indices,
                &places.definitions,
                &places.lanes,
                &places.levels,
                &places.tenants,
                &tags,
                &ages,
                &carried.fences,
                &carried.attempts,
                &carried.max_attempts,
                &carried.answered_fences,
                &carried.answered_verbs,
            ],
        )
        .await?;
        Ok(())
    }

    async fn flush_enqueued(&self, tx: &Tx<'_>, names: &Names) -> Result<(), Fault> {
        if self.moves.enqueued.is_empty() {
            return Ok(());
        }
        let mut carried = Carried::default();
        let mut places = Places::default();
        let mut unnamed = Unnamed::default();
        for id in &self.moves.enqueued {
            let (run, task) = self.get(*id)?;
            let key = run.lane_key(id.index);
            match (names.lane(&key), names.tenant(&run.tenant)) {
                (Some(lane), Some(tenant)) => {
                    carried.push(run, *id, task);
                    places.push(run.definition_id, lane.id, lane.level, tenant);
                }
                (lane, tenant) => {
                    if lane.is_none() {
                        unnamed.lanes.insert(key);
                    }
                    if tenant.is_none() && !unnamed.tenants.contains(&run.tenant) {
                        unnamed.tenants.push(run.tenant.clone());
                    }
                }
            }
        }
        if !unnamed.is_empty() {
            return Err(Fault::Unnamed(unnamed));
        }
        let turn = |(level, tenant): (&i32, &i32)| {
            level.wrapping_mul(31).wrapping_add(*tenant).rem_euclid(TURN_LOCKS)
        };
        let turns: BTreeSet<i32> = places.levels.iter().zip(&places.tenants).map(turn).collect();
        let turns: Vec<i32> = turns.into_iter().collect();
        tx.execute(&sql::LOCK_TURNS, &[&turns]).await?;
        let written = tx
            .execute(
                &sql::ENQUEUE,
                &[
                    &carried.runs,
                    &carried.indices,
                    &places.definitions,
                    &places.lanes,
                    &places.levels,
                    &places.tenants,
                    &carried.fences,
                    &carried.attempts,
                    &carried.max_attempts,
                    &carried.answered_fences,
                    &carried.answered_verbs,
                ],
            )
            .await?;
        if written != carried.runs.len() as u64 {
            let text = format!("{written} of {} tasks were enqueued", carried.runs.len());
            return Err(StoreError::Corrupt(text).into());
        }
        Ok(())
    }
}

/// The columns of a place in a queue.
#[derive(Default)]
struct Places {
    definitions: Vec<i32>,
    lanes: Vec<i32>,
    levels: Vec<i32>,
    tenants: Vec<i32>,
}

impl Places {
    fn push(&mut self, definition: i32, lane: i32, level: i32, tenant: i32) {
        self.definitions.push(definition);
        self.lanes.push(lane);
        self.levels.push(level);
        self.tenants.push(tenant);
    }
}

/// Writes history, in the order given.
pub(super) async fn write_events(
    tx: &Tx<'_>,
    now: Timestamp,
    events: &[(RunId, EventBody)],
) -> Result<(), Fault> {
    if events.is_empty() {
        return Ok(());
    }
    let mut columns = EventColumns::default();
    for (run, body) in events {
        columns.push(*run, body)?;
    }
    let EventColumns { runs, kinds, indices, from, to, fences, attempts, details } = &columns;
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
        [runs, &At(now), kinds, indices, from, to, fences, attempts, details];
    tx.execute(&sql::INSERT_EVENTS, &params).await?;
    Ok(())
}

#[derive(Default)]
struct EventColumns {
    runs: Vec<Uuid>,
    kinds: Vec<&'static str>,
    indices: Vec<Option<i32>>,
    from: Vec<Option<&'static str>>,
    to: Vec<&'static str>,
    fences: Vec<Option<i64>>,
    attempts: Vec<Option<i32>>,
    details: Vec<Option<String>>,
}

impl EventColumns {
    fn push(&mut self, run: RunId, body: &EventBody) -> Result<(), Fault> {
        self.runs.push(*run.as_uuid());
        match body {
            EventBody::Task(event) => {
                self.kinds.push(event.kind.word());
                self.indices.push(Some(event.task.0.cast_signed()));
                self.from.push(Some(event.from.word()));
                self.to.push(event.to.word());
                self.fences.push(Some(event.fence.0.cast_signed()));
                self.attempts.push(Some(event.attempt.cast_signed()));
                self.details.push(detail(&event.kind)?);
            }
            EventBody::Run(event) => {
                self.kinds.push(event.kind.word());
                self.indices.push(None);
                self.from.push(event.from.map(|state| state.word()));
                self.to.push(event.to.word());
                self.fences.push(None);
                self.attempts.push(None);
                self.details.push(detail(&event.kind)?);
            }
        }
        Ok(())
    }
}

/// What an event's kind says besides its word, as JSON.
fn detail(kind: &impl serde::Serialize) -> Result<Option<String>, Fault> {
    let wrong = |error: String| StoreError::Corrupt(format!("an event cannot be written: {error}"));
    match serde_json::to_value(kind).map_err(|error| wrong(error.to_string()))? {
        Value::String(_) => Ok(None),
        Value::Object(fields) if fields.len() == 1 => {
            Ok(fields.into_iter().next().map(|(_, fields)| fields.to_string()))
        }
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Array(_)
        | Value::Object(_)) => Err(wrong(other.to_string()).into()),
    }
}
