//! Lanes as they are stored, and what a verb writes of them.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use windlass_core::lane::{Bound, Taken};
use windlass_core::{LaneId, TaskId};

use super::super::fault::Fault;
use super::super::names::{Names, Unnamed};
use super::super::statements as sql;
use super::super::time::At;
use super::super::work::{Work, pairs};
use super::super::writes::{Writes, params};
use super::keys_text;
use crate::store::StoreError;

/// How many locks all lanes share. Two lanes that share one wait for each other for no need;
/// the server's table of locks has room for this many of each of dozens of transactions.
const LANE_LOCKS: u32 = 256;

/// How a lane is stored.
#[derive(Clone, Debug)]
pub(super) struct LaneRow {
    pub(super) limit: i32,
    pub(super) tenant: i32,
    pub(super) key: String,
    /// The number of its row, if it has one.
    pub(super) number: Option<i64>,
}

impl LaneRow {
    pub(super) fn of(names: &Names, lane: &LaneId, unnamed: &mut Unnamed) -> Option<LaneRow> {
        let limit = names.limit(&lane.limit);
        let tenant = lane.tenant.as_ref().map_or(Some(0), |tenant| names.tenant(tenant));
        if limit.is_none() {
            unnamed.limits.insert(lane.limit.clone());
        }
        if let Some(name) = lane.tenant.as_ref().filter(|_| tenant.is_none())
            && !unnamed.tenants.contains(name)
        {
            unnamed.tenants.push(name.clone());
        }
        let key = lane.key.as_ref().map(|key| key.as_str().to_owned()).unwrap_or_default();
        Some(LaneRow { limit: limit?, tenant: tenant?, key, number: None })
    }

    /// The number of its lock: the same in all processes.
    pub(super) fn lock(&self) -> i32 {
        // FNV-1a.
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let ids = self.limit.to_le_bytes().into_iter().chain(self.tenant.to_le_bytes());
        let hash = ids.chain(self.key.bytes()).fold(0x811c_9dc5, step);
        (hash % LANE_LOCKS).cast_signed()
    }
}

/// Lanes as three columns.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) limits: Vec<i32>,
    pub(super) tenants: Vec<i32>,
    pub(super) keys: Vec<String>,
}

impl Columns {
    fn push(&mut self, row: &LaneRow) {
        self.limits.push(row.limit);
        self.tenants.push(row.tenant);
        self.keys.push(row.key.clone());
    }
}

impl Columns {
    pub(super) fn of(rows: &[(LaneId, LaneRow)]) -> Columns {
        let mut columns = Columns::default();
        rows.iter().for_each(|(_, row)| columns.push(row));
        columns
    }
}

/// What became of a place in a lane.
struct Moved {
    was_there: bool,
    taken: Option<Taken>,
}

impl Work {
    /// Whether a sweep must look at lanes soon.
    pub(in super::super) fn has_unsettled_lanes(&self) -> bool {
        !self.lanes.later.is_empty() || !self.lanes.superseded.is_empty()
    }

    /// Writes what became of lanes.
    pub(in super::super) fn write_lanes(&self, writes: &mut Writes<'_>) -> Result<(), Fault> {
        let (mut keyed, mut texts) = (Vec::<Uuid>::new(), Vec::<String>::new());
        for run in &self.lanes.keyed {
            let text = self.runs.get(run).map(|run| keys_text(&run.lane_keys)).transpose()?;
            if let Some(text) = text.flatten() {
                keyed.push(*run.as_uuid());
                texts.push(text);
            }
        }
        if !keyed.is_empty() {
            writes.push(&sql::SET_LANE_KEYS, params![keyed, texts]);
        }
        self.write_lane_rows(writes)?;
        self.write_places(writes);
        self.write_superseded(writes);
        if !self.lanes.later.is_empty() {
            let runs: Vec<Uuid> = self.lanes.later.iter().map(|run| *run.as_uuid()).collect();
            writes.push(&sql::NOTE_LANES, params![runs]);
        }
        Ok(())
    }

    fn write_lane_rows(&self, writes: &mut Writes<'_>) -> Result<(), Fault> {
        let (mut old, mut new) = (Columns::default(), Columns::default());
        let (mut old_numbers, mut new_numbers) = (Vec::<i64>::new(), Vec::<i64>::new());
        let (mut held, mut served, mut last) =
            (Vec::<i32>::new(), Vec::<i64>::new(), Vec::<i64>::new());
        let mut slots = Vec::<Option<i32>>::new();
        let mut meters = Vec::<Option<String>>::new();
        let (mut alarms, mut dues) = (Vec::<Option<i64>>::new(), Vec::<Option<At>>::new());
        let mut ends = Vec::<Option<At>>::new();
        for id in &self.lanes.changed {
            let (Some(row), Some(lane)) = (self.lanes.rows.get(id), self.lanes.book.lanes.get(id))
            else {
                continue;
            };
            if let Some(number) = row.number {
                old.push(row);
                old_numbers.push(number);
            }
            let end = lane.forget_at();
            if end.is_none_or(|end| end > self.now) {
                new.push(row);
                let least = row.number.map_or(0, |number| number + 1);
                new_numbers.push(self.now.as_micros().max(least));
                held.push(lane.held.cast_signed());
                served.push(lane.served.cast_signed());
                last.push(lane.last.cast_signed());
                slots.push((lane.slots > 0).then_some(lane.slots.cast_signed()));
                let meter = lane.meter.as_ref().map(serde_json::to_string).transpose();
                meters.push(meter.map_err(|error| StoreError::Corrupt(error.to_string()))?);
                alarms.push(lane.alarm.map(|alarm| alarm.seq.cast_signed()));
                dues.push(lane.alarm.map(|alarm| At(alarm.due)));
                ends.push(end.map(At));
            }
        }
        if !old_numbers.is_empty() {
            let params = params![old.limits, old.tenants, old.keys, old_numbers];
            writes.push(&sql::DELETE_LANES, params);
        }
        if !new_numbers.is_empty() {
            let params = params![
                new.limits,
                new.tenants,
                new.keys,
                new_numbers,
                held,
                served,
                last,
                slots,
                meters,
                alarms,
                dues,
                ends,
            ];
            writes.push(&sql::INSERT_LANES, params);
        }
        Ok(())
    }

    /// Writes whose places others have, behind those places.
    fn write_superseded(&self, writes: &mut Writes<'_>) {
        let mut noted = BTreeSet::new();
        for (word, only_waited) in [("under_way", false), ("waiting", true)] {
            let (mut tasks, mut limits) = (Vec::<TaskId>::new(), Vec::<i32>::new());
            for (task, lane, waited) in &self.lanes.superseded {
                let row = self.lanes.rows.get(lane).filter(|_| *waited == only_waited);
                if let Some(row) = row {
                    tasks.push(*task);
                    limits.push(row.limit);
                    noted.insert(*task.run.as_uuid());
                }
            }
            if !tasks.is_empty() {
                let (runs, indices) = pairs(&tasks);
                writes.push(&sql::SUPERSEDE, params![runs, indices, limits, word]);
            }
        }
        if !noted.is_empty() {
            let runs: Vec<Uuid> = noted.into_iter().collect();
            writes.push(&sql::NOTE_SUPERSEDED, params![runs]);
        }
    }

    fn write_places(&self, writes: &mut Writes<'_>) {
        // One that was taken and given up again has left nothing.
        let mut moves: BTreeMap<(TaskId, &LaneId), Moved> = BTreeMap::new();
        for one in &self.lanes.places {
            let was_there = one.taken.is_none();
            let moved = moves.entry((one.task, &one.lane));
            moved.or_insert(Moved { was_there, taken: None }).taken = one.taken;
        }
        let (mut gone, mut gone_limits) = (Vec::<TaskId>::new(), Vec::<i32>::new());
        let (mut tasks, mut lanes) = (Vec::<TaskId>::new(), Columns::default());
        let (mut seqs, mut slots) = (Vec::<i64>::new(), Vec::<Option<i32>>::new());
        let mut are_rivals = Vec::<Option<bool>>::new();
        for ((task, lane), Moved { was_there, taken }) in moves {
            let Some(row) = self.lanes.rows.get(lane) else { continue };
            if was_there {
                gone.push(task);
                gone_limits.push(row.limit);
            }
            if let Some(Taken { seq, bound, is_rival }) = taken {
                tasks.push(task);
                lanes.push(row);
                seqs.push(seq.cast_signed());
                slots.push(match bound {
                    Bound::Slots(slots) => Some(slots.cast_signed()),
                    Bound::Rate(_) | Bound::Debounce(_) | Bound::Breaker(_) => None,
                });
                are_rivals.push(is_rival.then_some(true));
            }
        }
        if !gone.is_empty() {
            let (runs, indices) = pairs(&gone);
            writes.push(&sql::DELETE_PLACES, params![runs, indices, gone_limits]);
        }
        if !tasks.is_empty() {
            let (runs, indices) = pairs(&tasks);
            let params = params![
                runs,
                indices,
                lanes.limits,
                lanes.tenants,
                lanes.keys,
                seqs,
                slots,
                are_rivals,
            ];
            writes.push(&sql::INSERT_PLACES, params);
        }
    }
}
