//! Lanes as a verb reads them, once it has locked them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::lane::{Alarm, Entrant, Lane, Need, Waiter, WhenFull};
use windlass_core::{Fence, LaneId, ParentTally, TaskId, TaskIndex, TaskState};

use super::super::PostgresStore;
use super::super::fault::Fault;
use super::super::names::{Names, Unnamed};
use super::super::pool::{Ask, Params, Tx};
use super::super::run::{Narrow, Run, Task};
use super::super::statements as sql;
use super::super::time::At;
use super::super::work::{Work, answered, corrupt, pairs, run_of, task_id};
use super::LaneWork;
use super::rows::{Columns, LaneRow};
use crate::store::StoreError;

/// How many more of those who wait in a lane are read if all that were known have slots.
const WAITERS_MORE: i64 = 16;

/// Returns how lanes are stored, or fails with the names that have no number.
pub(super) fn lane_rows(
    names: &Names,
    lanes: BTreeSet<LaneId>,
) -> Result<Vec<(LaneId, LaneRow)>, Fault> {
    let mut unnamed = Unnamed::default();
    let mut rows = Vec::with_capacity(lanes.len());
    for lane in lanes {
        if let Some(row) = LaneRow::of(names, &lane, &mut unnamed) {
            rows.push((lane, row));
        }
    }
    if !unnamed.is_empty() {
        return Err(Fault::Unnamed(unnamed));
    }
    Ok(rows)
}

impl PostgresStore {
    /// Locks the lanes of tasks, and reads who is there and the time once it has them.
    pub(super) async fn load_lanes(
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
        let rows = lane_rows(tx.names(), wanted.keys().cloned().collect())?;
        let ahead = lane_rows(tx.names(), work.lanes_ahead(&tasks))?;
        let numbers: BTreeSet<i32> = rows.iter().chain(&ahead).map(|(_, row)| row.lock()).collect();
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
        read_places(tx.names(), work, &tasks, &places)?;
        let needs = tasks.iter().flat_map(|task| work.needs_of(*task));
        let rivals = rival_lanes(needs);
        self.load_rivals(tx, work, rivals).await
    }

    /// Locks lanes that nobody else has, and reads who is there. Answers whether it has them all.
    pub(super) async fn load_free_lanes(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        lanes: BTreeSet<LaneId>,
    ) -> Result<bool, Fault> {
        let rows = lane_rows(tx.names(), lanes)?;
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
        let needs = work.lanes.book.entrants.values().flat_map(|one| one.needs.iter().cloned());
        let rivals = rival_lanes(needs);
        self.load_rivals(tx, work, rivals).await?;
        Ok(true)
    }

    /// Reads who is in lanes in which newcomers take the place of the oldest, unless that is
    /// known.
    async fn load_rivals(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        lanes: BTreeSet<LaneId>,
    ) -> Result<(), Fault> {
        let is_new = |lane: &LaneId| {
            work.lanes.rows.contains_key(lane) && !work.lanes.with_rivals.contains(lane)
        };
        let rows: Vec<(LaneId, LaneRow)> = lanes
            .into_iter()
            .filter(is_new)
            .filter_map(|lane| Some((lane.clone(), work.lanes.rows.get(&lane)?.clone())))
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        let columns = Columns::of(&rows);
        let params: Params<'_> = &[&columns.limits, &columns.tenants, &columns.keys];
        for row in tx.query(&sql::RIVALS, params).await? {
            let lane = work.lanes.book.lanes.get_mut(&rows[number_of(&row)].0);
            if let Some(lane) = lane {
                let seq = row.get::<_, i64>("seq").cast_unsigned();
                lane.rivals.insert(seq, task_id(&row));
            }
        }
        work.lanes.with_rivals.extend(rows.into_iter().map(|(lane, _)| lane));
        Ok(())
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
            let lane = lane_of(row).map_err(StoreError::Corrupt)?;
            found[number_of(row)] = (lane, Some(row.get("number")));
        }
        let mut waiting = vec![Vec::new(); rows.len()];
        for (number, waiter) in self.read_waiters(tx, work, lanes).await? {
            waiting[number].push(waiter);
        }
        let places = rows.into_iter().zip(found).zip(waiting).zip(wanted);
        for ((((id, mut row), (mut lane, number)), waiting), wanted) in places {
            let has_more = i64::try_from(waiting.len()).unwrap_or(i64::MAX) >= *wanted;
            work.lanes.look(&id, &waiting);
            lane.extend(waiting, has_more);
            row.number = number;
            work.lanes.book.insert(id.clone(), lane);
            work.lanes.rows.insert(id, row);
        }
        Ok(())
    }

    /// Reads who waits behind those that are known.
    pub(super) async fn load_more_waiters(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        lanes: &[LaneId],
    ) -> Result<(), Fault> {
        let rows: Vec<(LaneId, LaneRow)> = lanes
            .iter()
            .filter_map(|lane| Some((lane.clone(), work.lanes.rows.get(lane)?.clone())))
            .collect();
        // Whoever has left since it was read is in the table still.
        let looked = |(lane, _): &(LaneId, LaneRow)| {
            let looked = work.lanes.looked.get(lane).copied().unwrap_or_default();
            work.lanes.book.lanes.get(lane).map(|lane| lane.served.max(looked).cast_signed())
        };
        let after: Vec<Option<i64>> = rows.iter().map(looked).collect();
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
            work.lanes.look(&lane, &waiting);
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
        let definitions = tx.names().definitions(tx, ids).await?;
        let mut waiters = Vec::with_capacity(rows.len());
        for row in rows {
            let id = task_id(row);
            let seq = row.get::<_, i64>("seq").cast_unsigned();
            let run = match work.runs.entry(id.run) {
                Entry::Vacant(entry) => entry.insert(run_of(&definitions, row)?),
                Entry::Occupied(entry) => entry.into_mut(),
            };
            if let Entry::Vacant(entry) = run.tasks.entry(id.index) {
                let task = waiting_task(row);
                let gone = "it waits for a limit, but its row is gone";
                entry.insert(task.ok_or_else(|| corrupt(id, gone))?);
                // Whatever its parents did, it waits for none of them.
                let tally = ParentTally { pending: 0, failed: 0, skipped: 0, cancelled: 0 };
                run.progress.load(id.index, tally);
            }
            let limits = row.get::<_, Option<Vec<i32>>>("limits");
            let places = row.get::<_, Option<Vec<i64>>>("places").unwrap_or_default();
            let entrant = match limits {
                Some(limits) => {
                    let places = limits.into_iter().zip(places).collect();
                    entrant(tx.names(), run, id.index, &places)?
                }
                // It has one lane, and this is its place there.
                None => {
                    Entrant { needs: run.needs(id.index), places: vec![seq], ..Entrant::default() }
                }
            };
            let last = entrant.needs.get(entrant.places.len().saturating_sub(1));
            let Some(bound) = last.map(|need| need.bound) else {
                return Err(corrupt(id, "it waits in a lane that its definition does not know"));
            };
            waiters.push((number_of(row), Waiter { seq, task: id, bound }));
            work.lanes.book.entrants.entry(id).or_insert(entrant);
        }
        Ok(waiters)
    }
}

fn read_places(
    names: &Names,
    work: &mut Work,
    tasks: &BTreeSet<TaskId>,
    rows: &[Row],
) -> Result<(), Fault> {
    let mut places: BTreeMap<TaskId, BTreeMap<i32, i64>> = BTreeMap::new();
    let mut out = BTreeSet::new();
    for row in rows {
        let seq: i64 = row.get("seq");
        places.entry(task_id(row)).or_default().insert(row.get("limit_id"), seq);
        if row.get::<_, Option<&str>>("superseded") == Some("waiting") {
            out.insert(task_id(row));
        }
    }
    for (task, places) in &places {
        if let Some(run) = work.runs.get(&task.run) {
            let mut entrant = entrant(names, run, task.index, places)?;
            entrant.is_out = out.contains(task);
            work.lanes.book.entrants.entry(*task).or_insert(entrant);
        }
    }
    work.lanes.read.extend(tasks);
    Ok(())
}

/// Returns the task with the places that it has, by the numbers of their limits.
///
/// Fails if a place belongs to no limit of the task's definition: a place that is overlooked is
/// never given up, and its key is blocked for ever.
fn entrant(
    names: &Names,
    run: &Run,
    index: TaskIndex,
    places: &BTreeMap<i32, i64>,
) -> Result<Entrant, Fault> {
    let needs = run.needs(index);
    let place = |need: &Need| {
        let limit = names.limit(&need.lane.limit)?;
        places.get(&limit).map(|place| place.cast_unsigned())
    };
    let found: Vec<u64> = needs.iter().map_while(place).collect();
    if found.len() != places.len() {
        let id = run.task_id(index);
        let (count, found) = (places.len(), found.len());
        let text = format!("it has {count} places in lanes, of which its definition knows {found}");
        return Err(corrupt(id, text));
    }
    Ok(Entrant { needs, places: found, ..Entrant::default() })
}

impl LaneWork {
    /// Notes who was read of those who wait in a lane.
    fn look(&mut self, lane: &LaneId, waiting: &[Waiter]) {
        if let Some(last) = waiting.last() {
            let looked = self.looked.entry(lane.clone()).or_default();
            *looked = last.seq.max(*looked);
        }
    }
}

/// The lanes in which newcomers take the place of the oldest.
fn rival_lanes(needs: impl Iterator<Item = Need>) -> BTreeSet<LaneId> {
    let is_one = |need: &Need| need.when_full == WhenFull::CancelOldest;
    needs.filter(is_one).map(|need| need.lane).collect()
}

/// A lane as its row says, without who waits.
fn lane_of(row: &Row) -> Result<Lane, String> {
    let slots = row.get::<_, Option<i32>>("lane_slots").unwrap_or_default();
    let meter = row.get::<_, Option<&str>>("meter").map(serde_json::from_str).transpose();
    let due = row.get::<_, Option<At>>("alarm_due");
    let seq = row.get::<_, Option<i64>>("alarm_seq").map(i64::cast_unsigned);
    let mut lane = Lane::new(
        row.get::<_, i32>("held").cast_unsigned(),
        row.get::<_, i64>("served").cast_unsigned(),
        row.get::<_, i64>("last").cast_unsigned(),
        slots.cast_unsigned(),
    );
    lane.meter = meter.map_err(|error| format!("what a lane remembers: {error}"))?;
    lane.alarm = seq.zip(due).map(|(seq, due)| Alarm { seq, due: due.0 });
    Ok(lane)
}

/// Which of the lanes that were asked for a row is about.
fn number_of(row: &Row) -> usize {
    usize::try_from(row.get::<_, i64>("n") - 1).unwrap_or_default()
}

/// A task that waits for a limit. `None` if the task has no row.
fn waiting_task(row: &Row) -> Option<Task> {
    let fence = row.get::<_, Option<i64>>("fence")?;
    Some(Task {
        state: TaskState::Waiting,
        fence: Fence(fence.cast_unsigned()),
        attempt: row.get::<_, i32>("attempt").cast_unsigned(),
        answered: answered(row),
        stored_in: Some(Narrow::Timers),
        ..Task::new()
    })
}
