//! Slots in the lanes of limits: given up by tasks that end, given to those who wait.
//!
//! A verb that ends limited tasks, or that makes some ready, locks their lanes once it knows
//! them all, reads who is there, lets [`windlass_core::Lanes`] decide, and writes what came of
//! it with everything else. Whoever gets a slot that way is a task of another run, which nobody
//! else lets go on while the lane is locked: so the run itself is not locked. A task that needs
//! slots in other lanes as well is let go on if those can be locked without waiting, and left to
//! the next sweep otherwise.

mod rows;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::lane::{Admitted, Entrant, Lane, Need, PlaceMove, Verdict, Waiter};
use windlass_core::{
    Fence, LaneId, LaneKeys, Lanes, ParentTally, RunId, TaskCommand, TaskEventKind, TaskId,
    TaskIndex, TaskState, Timestamp,
};

use self::rows::{Columns, LaneRow};
use super::PostgresStore;
use super::fault::Fault;
use super::names::Unnamed;
use super::pool::{Ask, Params, Tx};
use super::run::{Narrow, Run, Task};
use super::statements as sql;
use super::work::{Work, answered, corrupt, pairs, run_of, task_id};
use crate::store::StoreError;

/// How many more of those who wait in a lane are read if all that were known have slots.
const WAITERS_MORE: i64 = 16;

/// The lanes that a verb has locked, and what became of them.
#[derive(Default)]
pub(super) struct LaneWork {
    book: Lanes,
    rows: BTreeMap<LaneId, LaneRow>,
    /// The numbers of the locks.
    locked: BTreeSet<i32>,
    /// Tasks whose lanes were read.
    read: BTreeSet<TaskId>,
    changed: BTreeSet<LaneId>,
    places: Vec<PlaceMove>,
    /// Runs whose keys are to be stored.
    pub(super) keyed: Vec<RunId>,
    /// Runs that may have slots when the next sweep comes.
    later: BTreeSet<RunId>,
}

/// The keys of a run as they are stored.
pub(super) fn keys_of(text: Option<&str>) -> Result<LaneKeys, String> {
    let Some(text) = text else { return Ok(LaneKeys::default()) };
    let texts: Vec<Option<String>> =
        serde_json::from_str(text).map_err(|error| format!("its lane keys: {error}"))?;
    let texts = texts.iter().map(|text| text.as_deref());
    LaneKeys::from_texts(texts).map_err(|error| format!("its lane keys: {error}"))
}

/// The keys of a run to be stored; none if nothing limits it.
pub(super) fn keys_text(keys: &LaneKeys) -> Result<Option<String>, Fault> {
    if keys.is_empty() {
        return Ok(None);
    }
    let text = serde_json::to_string(&keys.to_texts());
    Ok(Some(text.map_err(|error| StoreError::Corrupt(error.to_string()))?))
}

impl Run {
    fn needs(&self, index: TaskIndex) -> Vec<Need> {
        self.lane_keys.needs(&self.definition, &self.tenant, index)
    }

    /// The tasks that need slots.
    fn limited(&self) -> Vec<TaskId> {
        if !self.definition.has_limits() {
            return Vec::new();
        }
        let limited = self.definition.indices().filter(|index| self.is_limited(*index));
        limited.map(|index| self.task_id(index)).collect()
    }
}

impl PostgresStore {
    /// Locks the lanes of all tasks of locked runs, before any of them is cancelled: whoever
    /// waits in a lane may be let go on by others until it is locked.
    pub(super) async fn lock_lanes(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        runs: impl IntoIterator<Item = RunId>,
    ) -> Result<(), Fault> {
        let runs = runs.into_iter().filter_map(|run| work.runs.get(&run));
        let tasks: Vec<TaskId> = runs.flat_map(Run::limited).collect();
        if tasks.is_empty() {
            return Ok(());
        }
        let lanes = work.lanes_of(&tasks);
        let rows = self.lane_rows(lanes)?;
        let numbers: BTreeSet<i32> = rows.iter().map(|(_, row)| row.lock()).collect();
        let new: Vec<i32> = numbers.difference(&work.lanes.locked).copied().collect();
        tx.query(&sql::LOCK_LANES, &[&new]).await?;
        work.lanes.locked.extend(new);
        Ok(())
    }

    /// Lets the next sweep look at the lanes of runs.
    pub(super) fn visit_lanes(&self, work: &mut Work, runs: impl IntoIterator<Item = RunId>) {
        let runs = runs.into_iter().filter_map(|run| work.runs.get(&run));
        let tasks: Vec<TaskId> = runs.flat_map(Run::limited).collect();
        work.moves.visits.extend(tasks);
    }

    /// Does for lanes what follows from what a verb has done: first slots that are free go to
    /// those who wait, then tasks whose turn came ask for theirs.
    pub(super) async fn settle_lanes(&self, tx: &Tx<'_>, work: &mut Work) -> Result<(), Fault> {
        let mut requests = VecDeque::new();
        loop {
            let vacated = std::mem::take(&mut work.moves.vacated);
            let visits = std::mem::take(&mut work.moves.visits);
            let new = std::mem::take(&mut work.moves.requests);
            let tasks: Vec<TaskId> = vacated.iter().chain(&visits).chain(&new).copied().collect();
            if tasks.is_empty() && requests.is_empty() {
                break;
            }
            self.load_lanes(tx, work, &tasks).await?;
            requests.extend(new);
            for task in &vacated {
                work.lanes.book.vacate(*task);
            }
            self.admit_waiters(tx, work).await?;
            if let Some(task) = requests.pop_front() {
                self.request_slots(tx, work, task).await?;
            }
        }
        let (changed, places) = work.lanes.book.take_changes();
        work.lanes.changed.extend(changed);
        work.lanes.places.extend(places);
        Ok(())
    }

    async fn request_slots(&self, tx: &Tx<'_>, work: &mut Work, id: TaskId) -> Result<(), Fault> {
        let now = work.now;
        let Some(run) = work.runs.get(&id.run) else { return Ok(()) };
        let Some(state) = run.tasks.get(&id.index).map(|task| task.state) else {
            return Err(corrupt(id, "it asks for slots and is not loaded"));
        };
        // The same verb may have ended it.
        if state.is_final() {
            return Ok(());
        }
        let needs = run.needs(id.index);
        let verdict = work.lanes.book.request(id, needs, now);
        let (lane, is_skipped) = match verdict {
            Verdict::Ready => {
                let is_pending = state == TaskState::Pending;
                let command = if is_pending { TaskCommand::Queue } else { TaskCommand::Promote };
                if let Some((run, moves)) = work.run(id.run) {
                    run.move_task(moves, id.index, command, TaskEventKind::Queued)?;
                    moves.enqueued.push(id);
                }
                return Ok(());
            }
            Verdict::Wait(lane) => (lane, false),
            Verdict::Skip(lane) => (lane, true),
        };
        if is_skipped {
            work.load_for_ends(tx, &[(id, TaskState::Skipped)]).await?;
        }
        let Some((run, moves)) = work.run(id.run) else { return Ok(()) };
        let kind = TaskEventKind::Blocked { limit: lane.limit, key: lane.key };
        run.move_task(moves, id.index, TaskCommand::Block, kind)?;
        if is_skipped {
            run.end_task(moves, now, id.index, TaskCommand::Skip, TaskEventKind::Skipped)?;
        } else {
            moves.scheduled.push((id, Timestamp::MAX));
        }
        Ok(())
    }

    /// Gives slots that are free to those who wait.
    async fn admit_waiters(&self, tx: &Tx<'_>, work: &mut Work) -> Result<(), Fault> {
        loop {
            let now = work.now;
            let Admitted { ready, stuck, unsettled } = work.lanes.book.admit(now);
            for id in ready {
                if let Some((run, moves)) = work.run(id.run) {
                    run.resume(moves, id.index)?;
                }
            }
            if !unsettled.is_empty() {
                self.load_more_waiters(tx, work, &unsettled).await?;
            }
            if !stuck.is_empty() {
                let missing = |(_, task): &(LaneId, TaskId)| work.lanes.book.missing(*task);
                let lanes: BTreeSet<LaneId> = stuck.iter().flat_map(missing).collect();
                let is_known = self.load_free_lanes(tx, work, lanes).await?;
                for (lane, task) in stuck {
                    if is_known {
                        work.lanes.book.reopen(lane);
                    } else {
                        work.lanes.later.insert(task.run);
                    }
                }
            } else if unsettled.is_empty() {
                return Ok(());
            }
        }
    }

    fn lane_rows(&self, lanes: BTreeSet<LaneId>) -> Result<Vec<(LaneId, LaneRow)>, Fault> {
        let mut unnamed = Unnamed::default();
        let mut rows = Vec::with_capacity(lanes.len());
        for lane in lanes {
            if let Some(row) = LaneRow::of(&self.names, &lane, &mut unnamed) {
                rows.push((lane, row));
            }
        }
        if !unnamed.is_empty() {
            return Err(Fault::Unnamed(unnamed));
        }
        Ok(rows)
    }

    /// Locks the lanes of tasks, and reads who is there and the time once it has them.
    async fn load_lanes(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        tasks: &[TaskId],
    ) -> Result<(), Fault> {
        let is_new = |task: &&TaskId| !work.lanes.read.contains(task);
        let tasks: BTreeSet<TaskId> = tasks.iter().filter(is_new).copied().collect();
        if tasks.is_empty() {
            return Ok(());
        }
        let mut wanted: BTreeMap<LaneId, i64> = BTreeMap::new();
        for need in tasks.iter().flat_map(|task| work.needs_of(*task)) {
            *wanted.entry(need.lane).or_insert(0) += 1;
        }
        wanted.retain(|lane, _| !work.lanes.rows.contains_key(lane));
        let rows = self.lane_rows(wanted.keys().cloned().collect())?;
        let numbers: BTreeSet<i32> = rows.iter().map(|(_, row)| row.lock()).collect();
        let numbers: Vec<i32> = numbers.difference(&work.lanes.locked).copied().collect();
        let wanted: Vec<i64> = wanted.into_values().collect();
        let (lock, places) = (Columns::of(&rows), pairs(&tasks));
        let (runs, indices) = places;
        let (numbers_param, places): (Params<'_>, Params<'_>) = (&[&numbers], &[&runs, &indices]);
        let after = vec![None::<i64>; rows.len()];
        let lanes: Params<'_> = &[&lock.limits, &lock.tenants, &lock.keys, &wanted, &after];
        let asks: [Ask<'_>; 4] = [
            (&sql::LOCK_LANES, numbers_param),
            (&sql::CLOCK, &[]),
            (&sql::PLACES, places),
            (&sql::LANES, lanes),
        ];
        let [_, clock, places, lanes] = tx.query_all(asks).await?;
        work.now = work.now.max(self.now_of(&clock)?);
        work.lanes.locked.extend(numbers);
        self.read_lanes(tx, work, rows, &wanted, &lanes).await?;
        self.read_places(work, &tasks, &places)
    }

    /// Locks lanes that nobody else has, and reads who is there. Answers whether it has them all.
    async fn load_free_lanes(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        lanes: BTreeSet<LaneId>,
    ) -> Result<bool, Fault> {
        let rows = self.lane_rows(lanes)?;
        let numbers: BTreeSet<i32> = rows.iter().map(|(_, row)| row.lock()).collect();
        let numbers: Vec<i32> = numbers.difference(&work.lanes.locked).copied().collect();
        let locked = tx.query(&sql::LOCK_FREE_LANES, &[&numbers]).await?;
        work.lanes.locked.extend(locked.iter().map(|row| row.get::<_, i32>(0)));
        if locked.len() < numbers.len() {
            return Ok(false);
        }
        let wanted = vec![1_i64; rows.len()];
        let columns = Columns::of(&rows);
        let after = vec![None::<i64>; rows.len()];
        let params: Params<'_> =
            &[&columns.limits, &columns.tenants, &columns.keys, &wanted, &after];
        let lanes = tx.query(&sql::LANES, params).await?;
        self.read_lanes(tx, work, rows, &wanted, &lanes).await?;
        Ok(true)
    }

    async fn read_lanes(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        rows: Vec<(LaneId, LaneRow)>,
        wanted: &[i64],
        lanes: &[Row],
    ) -> Result<(), Fault> {
        let mut found: Vec<(Lane, Option<i64>)> = vec![(Lane::default(), None); rows.len()];
        for row in lanes {
            let lane = Lane::new(
                row.get::<_, i32>("held").cast_unsigned(),
                row.get::<_, i64>("served").cast_unsigned(),
                row.get::<_, i64>("last").cast_unsigned(),
                row.get::<_, i32>("lane_slots").cast_unsigned(),
            );
            found[number_of(row)] = (lane, Some(row.get("number")));
        }
        let mut waiting = vec![Vec::new(); rows.len()];
        for (number, waiter) in self.read_waiters(tx, work, lanes).await? {
            waiting[number].push(waiter);
        }
        let places = rows.into_iter().zip(found).zip(waiting).zip(wanted);
        for ((((id, mut row), (mut lane, number)), waiting), wanted) in places {
            let has_more = i64::try_from(waiting.len()).unwrap_or(i64::MAX) >= *wanted;
            lane.extend(waiting, has_more);
            row.number = number;
            work.lanes.book.insert(id.clone(), lane);
            work.lanes.rows.insert(id, row);
        }
        Ok(())
    }

    /// Reads who waits behind those that are known.
    async fn load_more_waiters(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        lanes: &[LaneId],
    ) -> Result<(), Fault> {
        let rows: Vec<(LaneId, LaneRow)> = lanes
            .iter()
            .filter_map(|lane| Some((lane.clone(), work.lanes.rows.get(lane)?.clone())))
            .collect();
        let served = |(lane, _): &(LaneId, LaneRow)| {
            work.lanes.book.lanes.get(lane).map(|lane| lane.served.cast_signed())
        };
        let after: Vec<Option<i64>> = rows.iter().map(served).collect();
        let wanted = vec![WAITERS_MORE; rows.len()];
        let columns = Columns::of(&rows);
        let params: Params<'_> =
            &[&columns.limits, &columns.tenants, &columns.keys, &wanted, &after];
        let lanes = tx.query(&sql::LANES, params).await?;
        let mut waiting = vec![Vec::new(); rows.len()];
        for (number, waiter) in self.read_waiters(tx, work, &lanes).await? {
            waiting[number].push(waiter);
        }
        for ((lane, _), mut waiting) in rows.into_iter().zip(waiting) {
            let count = i64::try_from(waiting.len()).unwrap_or(i64::MAX);
            // What this verb has ended waits no more.
            let is_final = |task| work.task(task).is_some_and(|task| task.state.is_final());
            waiting.retain(|waiter: &Waiter| !is_final(waiter.task));
            if let Some(known) = work.lanes.book.lanes.get_mut(&lane) {
                known.extend(waiting, count >= WAITERS_MORE);
            }
            work.lanes.book.reopen(lane);
        }
        Ok(())
    }

    /// Loads the tasks of rows of [`sql::LANES`] that tell of someone who waits, and answers who
    /// they are and in which of the lanes.
    async fn read_waiters(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        rows: &[Row],
    ) -> Result<Vec<(usize, Waiter)>, Fault> {
        let is_one = |row: &&Row| row.get::<_, Option<Uuid>>("id").is_some();
        let rows: Vec<&Row> = rows.iter().filter(is_one).collect();
        let ids = rows.iter().map(|row| row.get::<_, i32>("definition_id"));
        let definitions = self.names.definitions(tx, ids).await?;
        let mut waiters = Vec::with_capacity(rows.len());
        for row in rows {
            let id = task_id(row);
            let seq = row.get::<_, i64>("seq").cast_unsigned();
            let slots = row.get::<_, i32>("slots").cast_unsigned();
            waiters.push((number_of(row), Waiter { seq, task: id, slots }));
            let run = match work.runs.entry(id.run) {
                Entry::Vacant(entry) => entry.insert(run_of(&definitions, row)?),
                Entry::Occupied(entry) => entry.into_mut(),
            };
            if let Entry::Vacant(entry) = run.tasks.entry(id.index) {
                entry.insert(waiting_task(row));
                // Whatever its parents did, it waits for none of them.
                let tally = ParentTally { pending: 0, failed: 0, skipped: 0, cancelled: 0 };
                run.progress.load(id.index, tally);
            }
            let limits = row.get::<_, Option<Vec<i32>>>("limits");
            let places = row.get::<_, Option<Vec<i64>>>("places").unwrap_or_default();
            let entrant = match limits {
                Some(limits) => {
                    let places = limits.into_iter().zip(places).collect();
                    self.entrant(run, id.index, &places)
                }
                // It has one lane, and this is its place there.
                None => Entrant { needs: run.needs(id.index), places: vec![seq] },
            };
            work.lanes.book.entrants.entry(id).or_insert(entrant);
        }
        Ok(waiters)
    }

    fn read_places(
        &self,
        work: &mut Work,
        tasks: &BTreeSet<TaskId>,
        rows: &[Row],
    ) -> Result<(), Fault> {
        let mut places: BTreeMap<TaskId, BTreeMap<i32, i64>> = BTreeMap::new();
        for row in rows {
            let seq: i64 = row.get("seq");
            places.entry(task_id(row)).or_default().insert(row.get("limit_id"), seq);
        }
        for (task, places) in &places {
            if let Some(run) = work.runs.get(&task.run) {
                let entrant = self.entrant(run, task.index, places);
                work.lanes.book.entrants.entry(*task).or_insert(entrant);
            }
        }
        work.lanes.read.extend(tasks);
        Ok(())
    }

    /// A task that has these places, by the numbers of their limits.
    fn entrant(&self, run: &Run, index: TaskIndex, places: &BTreeMap<i32, i64>) -> Entrant {
        let needs = run.needs(index);
        let place = |need: &Need| {
            let limit = self.names.limit(&need.lane.limit)?;
            places.get(&limit).map(|place| place.cast_unsigned())
        };
        let places = needs.iter().map_while(place).collect();
        Entrant { needs, places }
    }
}

/// Which of the lanes that were asked for a row is about.
fn number_of(row: &Row) -> usize {
    usize::try_from(row.get::<_, i64>("n") - 1).unwrap_or_default()
}

/// A task that waits in a lane, as the row says.
fn waiting_task(row: &Row) -> Task {
    Task {
        state: TaskState::Waiting,
        fence: Fence(row.get::<_, i64>("fence").cast_unsigned()),
        attempt: row.get::<_, i32>("attempt").cast_unsigned(),
        answered: answered(row),
        stored_in: Some(Narrow::Timers),
        ..Task::new()
    }
}

impl Work {
    fn needs_of(&self, task: TaskId) -> Vec<Need> {
        self.runs.get(&task.run).map_or_else(Vec::new, |run| run.needs(task.index))
    }

    fn lanes_of(&self, tasks: &[TaskId]) -> BTreeSet<LaneId> {
        tasks.iter().flat_map(|task| self.needs_of(*task)).map(|need| need.lane).collect()
    }
}
