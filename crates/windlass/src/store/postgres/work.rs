//! What a verb has locked, loaded and changed: read at its beginning, written at its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;
use windlass_core::{
    ClaimSeq, Definition, Fence, ParentTally, Priority, Progress, RunCounters, RunId, RunState,
    TaskId, TaskIndex, TaskKind, TaskSpec, TaskState, Tenant, Timestamp, WorkerId,
};

use super::fault::Fault;
use super::lanes::{self, LaneWork};
use super::pool::Tx;
use super::run::{Moves, Narrow, Place, Run, Task, Verb};
use super::start::Known;
use super::statements as sql;
use super::time::At;
use super::unsound;
use crate::store::{Held, NewRun, StoreError};

/// The runs that a verb has locked, and what it wants written.
pub(super) struct Work {
    pub(super) now: Timestamp,
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) moves: Moves,
    /// Runs that begin, which undo others.
    pub(super) born: Vec<(NewRun, Known)>,
    /// What became of lanes.
    pub(super) lanes: LaneWork,
}

impl Work {
    pub(super) fn new(now: Timestamp) -> Self {
        Work {
            now,
            runs: BTreeMap::new(),
            moves: Moves::default(),
            born: Vec::new(),
            lanes: LaneWork::default(),
        }
    }

    /// Locks those of some runs that nobody else has locked.
    pub(super) async fn lock_free(
        tx: &Tx<'_>,
        now: Timestamp,
        runs: impl IntoIterator<Item = RunId>,
    ) -> Result<Work, Fault> {
        let ids = sorted_ids(runs);
        if ids.is_empty() {
            return Ok(Work::new(now));
        }
        let rows = tx.query(&sql::LOCK_FREE_RUNS, &[&ids]).await?;
        Work::of(tx, now, &rows).await
    }

    /// The runs of rows that were locked.
    pub(super) async fn of(tx: &Tx<'_>, now: Timestamp, rows: &[Row]) -> Result<Work, Fault> {
        let definitions = definitions_of(tx, rows).await?;
        let mut work = Work::new(now);
        for row in rows {
            let run = run_of(&definitions, row)?;
            work.runs.insert(run.id, run);
        }
        Ok(work)
    }

    /// Loads tasks of locked runs that have not been loaded; those that do not exist are
    /// left out.
    pub(super) async fn load(
        &mut self,
        tx: &Tx<'_>,
        tasks: impl IntoIterator<Item = TaskId>,
    ) -> Result<(), Fault> {
        let is_wanted = |id: &TaskId| {
            let run = self.runs.get(&id.run);
            run.is_some_and(|run| {
                id.index.as_usize() < run.definition.tasks().len()
                    && !run.tasks.contains_key(&id.index)
            })
        };
        let wanted: BTreeSet<TaskId> = tasks.into_iter().filter(is_wanted).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (runs, indices) = pairs(&wanted);
        let rows = tx.query(&sql::LOAD_TASKS, &[&runs, &indices]).await?;
        rows.iter().try_for_each(|row| self.remember(row))
    }

    /// Loads all tasks of a locked run.
    pub(super) async fn load_all(&mut self, tx: &Tx<'_>, run: RunId) -> Result<(), Fault> {
        self.load(tx, self.tasks_of(run)).await
    }

    /// All tasks of a locked run.
    pub(super) fn tasks_of(&self, run: RunId) -> impl Iterator<Item = TaskId> + use<> {
        let count = self.runs.get(&run).map_or(0, |run| run.definition.tasks().len());
        (0..).map(TaskIndex).take(count).map(move |index| TaskId { run, index })
    }

    fn remember(&mut self, row: &Row) -> Result<(), Fault> {
        let id @ TaskId { index, .. } = task_id(row);
        let Some(run) = self.runs.get_mut(&id.run) else { return Ok(()) };
        if run.tasks.contains_key(&index) {
            return Ok(());
        }
        let task = task_of(row).map_err(|error| corrupt(id, error))?;
        // Without a row, nothing has happened to it before it became active.
        let parents = match task.stored_in {
            Some(_) => 0,
            None => run.definition.task(index).parents.len(),
        };
        let count = |column| row.get::<_, Option<i32>>(column).map(i32::cast_unsigned);
        let tally = ParentTally {
            pending: count("pending_parents")
                .unwrap_or_else(|| u32::try_from(parents).unwrap_or(u32::MAX)),
            failed: count("failed_parents").unwrap_or_default(),
            skipped: count("skipped_parents").unwrap_or_default(),
            cancelled: 0,
        };
        run.progress.load(index, tally);
        if run.definition.on_failure() == Some(index) {
            run.progress.on_failure_waits(task.state == TaskState::Pending);
        }
        run.tasks.insert(index, task);
        Ok(())
    }

    /// Takes tasks that are claimed for the first time away from their workers, and so loads
    /// them. Those that have another fence, or of which a row may say more, are left to be
    /// loaded.
    pub(super) async fn take_first_claims(
        &mut self,
        tx: &Tx<'_>,
        held: impl IntoIterator<Item = Held>,
    ) -> Result<(), Fault> {
        let is_first = |held: &Held| {
            let run = self.runs.get(&held.task.run);
            run.is_some_and(|run| {
                held.task.index.as_usize() < run.definition.tasks().len()
                    && !run.tasks.contains_key(&held.task.index)
                    && run.is_first_claim(held.task.index, held.fence)
            })
        };
        let wanted: BTreeSet<Held> = held.into_iter().filter(is_first).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let leases = Leases::of(&wanted);
        let rows = tx.query(&sql::TAKE_LEASES, &leases.params()).await?;
        self.remember_first_claims(&rows);
        Ok(())
    }

    /// Loads tasks that were taken away from their workers before anything was known of their
    /// runs. Answers whether all of them were claimed for the first time, as was thought.
    pub(super) fn remember_first_claims(&mut self, rows: &[Row]) -> bool {
        rows.iter().all(|row| {
            let TaskId { run, index } = task_id(row);
            let fence = Fence(row.get::<_, i64>("fence").cast_unsigned());
            let Some(run) = self.runs.get_mut(&run) else { return false };
            let is_known = index.as_usize() < run.definition.tasks().len();
            if !is_known || !run.is_first_claim(index, fence) {
                return false;
            }
            let seq = ClaimSeq(row.get::<_, i64>("claim_seq").cast_unsigned());
            let task = Task {
                state: TaskState::Running,
                fence,
                attempt: row.get::<_, i32>("attempt").cast_unsigned(),
                answered: answered(row),
                holder: Some((WorkerId::from_uuid(row.get("worker_id")), seq)),
                place: place(row),
                may_have_checkpoint: has_checkpoint(row),
                ..Task::new()
            };
            let tally = ParentTally { pending: 0, failed: 0, skipped: 0, cancelled: 0 };
            run.progress.load(index, tally);
            if run.definition.on_failure() == Some(index) {
                run.progress.on_failure_waits(false);
            }
            run.tasks.insert(index, task);
            true
        })
    }

    /// Loads a task of a locked run that waits for a time, by its timer, which is locked too. What
    /// its row says is not known, and not needed to let it go on. A sleep, which ends, is left
    /// to be loaded, and so is what may have to wait for a slot in a lane.
    pub(super) fn remember_due(&mut self, row: &Row) {
        let TaskId { run, index } = task_id(row);
        let Some(run) = self.runs.get_mut(&run) else { return };
        let spec = run.definition.tasks().get(index.as_usize());
        let ends_or_waits = |spec: &Arc<TaskSpec>| {
            matches!(spec.kind, TaskKind::Sleep(_)) || !spec.limits.is_empty()
        };
        if spec.is_none_or(ends_or_waits) {
            return;
        }
        let is_waiting: bool = row.get("is_waiting");
        let task = Task {
            state: if is_waiting { TaskState::Waiting } else { TaskState::Scheduled },
            fence: Fence(row.get::<_, i64>("fence").cast_unsigned()),
            attempt: row.get::<_, i32>("attempt").cast_unsigned(),
            answered: answered(row),
            stored_in: Some(Narrow::Timers),
            ..Task::new()
        };
        let tally = ParentTally { pending: 0, failed: 0, skipped: 0, cancelled: 0 };
        run.progress.load(index, tally);
        run.tasks.insert(index, task);
    }

    /// Loads what is needed to end tasks in these states, each with all that follows.
    pub(super) async fn load_for_ends(
        &mut self,
        tx: &Tx<'_>,
        ends: &[(TaskId, TaskState)],
    ) -> Result<(), Fault> {
        loop {
            let mut wanted = BTreeSet::new();
            for (id, state) in ends {
                let Some(run) = self.runs.get_mut(&id.run) else { continue };
                let mut is_assumed = true;
                while is_assumed {
                    let mut missing = run.progress.missing(&run.definition, id.index, *state);
                    let on_failure = run.definition.on_failure();
                    missing.extend(on_failure.filter(|index| !run.tasks.contains_key(index)));
                    is_assumed = false;
                    for index in missing {
                        if run.assume(index) {
                            is_assumed = true;
                        } else {
                            wanted.insert(TaskId { run: id.run, index });
                        }
                    }
                }
            }
            if wanted.is_empty() {
                return Ok(());
            }
            self.load(tx, wanted.iter().copied()).await?;
            if let Some(id) = wanted.into_iter().find(|id| self.task(*id).is_none()) {
                return Err(corrupt(
                    id,
                    "it does not exist, its run has fewer tasks than its definition",
                ));
            }
        }
    }

    /// A locked run and the moves, to be changed together.
    pub(super) fn run(&mut self, id: RunId) -> Option<(&mut Run, &mut Moves)> {
        Some((self.runs.get_mut(&id)?, &mut self.moves))
    }

    pub(super) fn task(&self, id: TaskId) -> Option<&Task> {
        self.runs.get(&id.run)?.tasks.get(&id.index)
    }
}

/// A run of a row that was read, without its tasks.
pub(super) fn run_of(definitions: &HashMap<i32, Arc<Definition>>, row: &Row) -> Result<Run, Fault> {
    let id = RunId::from_uuid(row.get("id"));
    let wrong = |error: String| unsound::of(id)(StoreError::Corrupt(format!("run {id}: {error}")));
    let definition_id = row.get("definition_id");
    let definition = &definitions[&definition_id];
    let counters = RunCounters {
        open: row.get::<_, i32>("open_tasks").cast_unsigned(),
        failed: row.get::<_, i32>("failed_tasks").cast_unsigned(),
    };
    let tenant = Tenant::new(row.get::<_, &str>("tenant"));
    Ok(Run {
        id,
        definition_id,
        definition: definition.clone(),
        tenant: tenant.map_err(|error| wrong(error.to_string()))?,
        priority: Priority::try_from(row.get::<_, i16>("priority")).map_err(wrong)?,
        state: run_state(row.get("state")).map_err(wrong)?,
        round: row.get::<_, i32>("round").cast_unsigned(),
        lane_keys: lanes::keys_of(row.get("lane_keys")).map_err(wrong)?,
        ended_at: None,
        progress: Progress::partial(definition, counters),
        tasks: BTreeMap::new(),
        is_changed: false,
        ahead: None,
    })
}

/// Leases to be ended.
pub(super) struct Leases {
    runs: Vec<Uuid>,
    indices: Vec<i32>,
    fences: Vec<i64>,
}

impl Leases {
    pub(super) fn of<'a>(held: impl IntoIterator<Item = &'a Held> + Clone) -> Self {
        let (runs, indices) = pairs(held.clone().into_iter().map(|one| &one.task));
        let fences = held.into_iter().map(|one| one.fence.0.cast_signed()).collect();
        Leases { runs, indices, fences }
    }

    /// The parameters of [`sql::TAKE_LEASES`].
    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 3] {
        [&self.runs, &self.indices, &self.fences]
    }
}

fn task_of(row: &Row) -> Result<Task, String> {
    let holder = row.get::<_, Option<Uuid>>("worker_id").map(|worker| {
        let seq = row.get::<_, Option<i64>>("claim_seq").unwrap_or_default();
        (WorkerId::from_uuid(worker), ClaimSeq(seq.cast_unsigned()))
    });
    let due: Option<At> = row.get("due");
    let is_ready: bool = row.get("is_ready");
    let stored_in = match (holder.is_some(), is_ready, due.is_some()) {
        (true, false, false) => Some(Narrow::Leases),
        (false, true, false) => Some(Narrow::Ready),
        (false, false, true) => Some(Narrow::Timers),
        (false, false, false) => None,
        (true, true, _) | (true, _, true) | (_, true, true) => {
            return Err("it is in two queues at once".to_owned());
        }
    };
    let word: Option<&str> = row.get("state");
    let state = match (word.unwrap_or("active"), stored_in) {
        ("active", Some(Narrow::Ready)) => TaskState::Ready,
        ("active", Some(Narrow::Leases)) => TaskState::Running,
        ("active", Some(Narrow::Timers)) if row.get("is_waiting") => TaskState::Waiting,
        ("active", Some(Narrow::Timers)) => TaskState::Scheduled,
        ("active", None) if word.is_none() => TaskState::Pending,
        ("active", None) => return Err("it is active and nowhere to be found".to_owned()),
        (word, None) => task_state(word)?,
        (word, Some(_)) => return Err(format!("it is {word} and still in a queue")),
    };
    let failure = row.get::<_, Option<&str>>("failure").map(serde_json::from_str).transpose();
    let fence = Fence(row.get::<_, Option<i64>>("fence").unwrap_or_default().cast_unsigned());
    Ok(Task {
        state,
        fence,
        // Only a lease says what its own attempt left, and nothing what earlier ones did.
        may_have_checkpoint: match holder {
            Some(_) => has_checkpoint(row) || fence > Fence(1),
            None => fence > Fence(0),
        },
        attempt: row.get::<_, Option<i32>>("attempt").unwrap_or_default().cast_unsigned(),
        answered: answered(row),
        holder,
        place: place(row),
        failure: failure.map_err(|error| format!("its failure cannot be read: {error}"))?,
        stored_in,
        has_row: word.is_some(),
        ..Task::new()
    })
}

/// Where a task stands or stood, if the row says so.
fn place(row: &Row) -> Option<Place> {
    row.get::<_, Option<i32>>("route_id").map(|route| Place {
        route,
        tag: row.get("tag"),
        seq: row.get("seq"),
    })
}

fn has_checkpoint(row: &Row) -> bool {
    row.get::<_, Option<bool>>("has_checkpoint").unwrap_or_default()
}

/// The newest write of a worker that was applied.
pub(super) fn answered(row: &Row) -> Option<(Fence, Verb)> {
    match (row.get::<_, Option<i64>>("answered_fence"), row.get("answered_verb")) {
        (Some(fence), Some("finish")) => Some((Fence(fence.cast_unsigned()), Verb::Finish)),
        (Some(fence), Some("release")) => Some((Fence(fence.cast_unsigned()), Verb::Release)),
        (_, Some(_) | None) => None,
    }
}

pub(super) fn corrupt(id: TaskId, error: impl std::fmt::Display) -> Fault {
    unsound::of(id.run)(StoreError::Corrupt(format!("task {id}: {error}")))
}

/// The definitions of locked runs.
async fn definitions_of(tx: &Tx<'_>, runs: &[Row]) -> Result<HashMap<i32, Arc<Definition>>, Fault> {
    let definition_of = |row: &Row| row.get::<_, i32>("definition_id");
    match tx.names().definitions(tx, runs.iter().map(definition_of)).await {
        Err(Fault::Answer(StoreError::Corrupt(_))) => {}
        other => return other,
    }
    // One of them cannot be read: then it is known whose it is.
    let mut definitions = HashMap::new();
    for row in runs {
        let run = RunId::from_uuid(row.get("id"));
        match tx.names().definitions(tx, [definition_of(row)]).await {
            Err(Fault::Answer(error)) => return Err(unsound::of(run)(error)),
            other => definitions.extend(other?),
        }
    }
    Ok(definitions)
}

/// The word of a state, read back.
pub(super) fn task_state(word: &str) -> Result<TaskState, String> {
    let state = TaskState::ALL.into_iter().find(|state| state.word() == word);
    state.ok_or_else(|| format!("{word:?} is not a state of a task"))
}

/// The word of a state, read back.
pub(super) fn run_state(word: &str) -> Result<RunState, String> {
    let state = RunState::ALL.into_iter().find(|state| state.word() == word);
    state.ok_or_else(|| format!("{word:?} is not a state of a run"))
}

/// The task that a row is about.
pub(super) fn task_id(row: &Row) -> TaskId {
    let index = TaskIndex(row.get::<_, i32>("idx").cast_unsigned());
    TaskId { run: RunId::from_uuid(row.get("run_id")), index }
}

/// The ids of runs in the order in which they are locked.
pub(super) fn sorted_ids(runs: impl IntoIterator<Item = RunId>) -> Vec<Uuid> {
    let ids: BTreeSet<RunId> = runs.into_iter().collect();
    ids.iter().map(|id| *id.as_uuid()).collect()
}

/// Tasks as two columns.
pub(super) fn pairs<'a>(tasks: impl IntoIterator<Item = &'a TaskId>) -> (Vec<Uuid>, Vec<i32>) {
    tasks.into_iter().map(|id| (*id.run.as_uuid(), id.index.0.cast_signed())).unzip()
}
