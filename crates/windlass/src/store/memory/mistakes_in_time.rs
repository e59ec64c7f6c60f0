//! The planted mistakes about limits in a time, see [`crate::planted`].

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use windlass_core::lane::{Changes, Meter};
use windlass_core::{Bound, LaneId, TaskId, TaskState, Timestamp};

use super::state::{Shared, State};
use crate::planted::PlantedBug;

/// The bugs that are made of what lanes remembered before.
const OF_METERS: [PlantedBug; 5] = [
    PlantedBug::TokenNotCounted,
    PlantedBug::TokensRefilledTwice,
    PlantedBug::BreakerNeverOpens,
    PlantedBug::BreakerNeverCloses,
    PlantedBug::ProbeLetsTwoThrough,
];

const LONG_AGO: Timestamp = Timestamp::from_micros(0);

impl State {
    /// With the bug, whether a superseded run is left alone because it is under way.
    pub(super) fn overlooks_superseded(&self, tasks: RangeInclusive<TaskId>) -> bool {
        let is_under_way = |id: &TaskId| {
            let run = self.runs.get(&id.run);
            run.is_some_and(|run| run.tasks[id.index.as_usize()].state != TaskState::Waiting)
        };
        self.shared.planted.has(PlantedBug::SupersededStillRuns)
            && self.shared.superseded.range(tasks).any(is_under_way)
    }
}

impl Shared {
    fn has_bug_of_meters(&self) -> bool {
        OF_METERS.iter().any(|bug| self.planted.has(*bug))
    }

    /// What lanes remember, if a bug wants to know.
    pub(super) fn meters(&self) -> BTreeMap<LaneId, Option<Meter>> {
        if !self.has_bug_of_meters() {
            return BTreeMap::new();
        }
        self.lanes.lanes.iter().map(|(id, lane)| (id.clone(), lane.meter)).collect()
    }

    /// With the bugs, lanes remember something else of an attempt that has ended.
    pub(super) fn mistake_reports(&mut self, before: &BTreeMap<LaneId, Option<Meter>>) {
        for (id, before) in before {
            let Some(lane) = self.lanes.lanes.get_mut(id) else { continue };
            let opens = matches!(lane.meter, Some(Meter::Open { .. }));
            let closes = matches!(before, Some(Meter::Probing { .. })) && lane.meter.is_none();
            if opens && self.planted.has(PlantedBug::BreakerNeverOpens) {
                lane.meter = None;
            }
            if closes && self.planted.has(PlantedBug::BreakerNeverCloses) {
                lane.meter = *before;
            }
        }
    }

    /// With the bugs, lanes remember something else of whose turn has come; who had waited, if
    /// `waited`.
    pub(super) fn mistake_turns(&mut self, before: &BTreeMap<LaneId, Option<Meter>>, waited: bool) {
        if !self.has_bug_of_meters() {
            return;
        }
        let now = self.now;
        for (id, lane) in &mut self.lanes.lanes {
            let before = before.get(id).copied().flatten();
            if let Some(Meter::Full(full)) = lane.meter.filter(|_| before != lane.meter) {
                let base = if let Some(Meter::Full(full)) = before { full.max(now) } else { now };
                if self.planted.has(PlantedBug::TokensRefilledTwice) {
                    lane.meter = Some(Meter::Full(base + full.since(base) / 2));
                }
                if waited && self.planted.has(PlantedBug::TokenNotCounted) {
                    lane.meter = before;
                }
            }
            if let (Some(Meter::Open { until, .. }), Some(Meter::Probing { forget, .. })) =
                (before, lane.meter)
                && until > LONG_AGO
                && self.planted.has(PlantedBug::ProbeLetsTwoThrough)
            {
                lane.meter = Some(Meter::Open { until: LONG_AGO, forget });
            }
        }
    }

    /// With the bug, whoever puts off another in a debounce goes in its stead.
    pub(super) fn keep_first(&mut self, changes: &mut Changes) {
        if !self.planted.has(PlantedBug::DebounceKeepsFirst) {
            return;
        }
        for (first, id, _) in &mut changes.superseded {
            let Some(lane) = self.lanes.lanes.get_mut(id) else { continue };
            let Some(waiter) = lane.waiting.back_mut() else { continue };
            if !matches!(waiter.bound, Bound::Debounce(_)) {
                continue;
            }
            let last = std::mem::replace(&mut waiter.task, *first);
            let mut swap = |from: TaskId, is_out: bool| {
                let entrant = self.lanes.entrants.get_mut(&from);
                entrant.map(|entrant| {
                    entrant.is_out = is_out;
                    std::mem::take(&mut entrant.places)
                })
            };
            let (theirs, mine) = (swap(*first, false), swap(last, true));
            for (task, places) in [(*first, mine), (last, theirs)] {
                if let (Some(entrant), Some(places)) = (self.lanes.entrants.get_mut(&task), places)
                {
                    entrant.places = places;
                }
            }
            for (task, _) in changes.alarms.iter_mut().filter(|(task, _)| *task == last) {
                *task = *first;
            }
            *first = last;
        }
    }
}
