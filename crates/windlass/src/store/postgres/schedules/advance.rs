//! What is written of schedules that were decided about.

use windlass_core::Timestamp;

use super::super::statements as sql;
use super::super::time::At;
use super::super::writes::{Writes, params};
use super::rows::FireColumns;
use crate::store::schedules::{Firing, Left};
use crate::store::{Fire, NewRun, ScheduleRecord};

/// Where schedules are, which the transaction has locked, and the new lines of their histories.
#[derive(Default)]
pub(super) struct Advance {
    ids: Vec<i64>,
    states: Vec<&'static str>,
    nexts: Vec<Option<At>>,
    dues: Vec<Option<At>>,
    lasts: Vec<Option<At>>,
    queued: Vec<Option<At>>,
    pub(super) fires: FireColumns,
    dequeued: (Vec<i64>, Vec<At>),
    skipped: Vec<i64>,
    /// The lines whose runs are over.
    pub(super) closed: Vec<i64>,
}

impl Advance {
    fn put<'a>(&mut self, record: &ScheduleRecord, fires: impl IntoIterator<Item = &'a Fire>) {
        self.ids.push(record.id.0.cast_signed());
        self.states.push(record.state.word());
        self.nexts.push(record.next_at.map(At));
        self.dues.push(record.due_at().map(At));
        self.lasts.push(record.last_at.map(At));
        self.queued.push(record.queued_at.map(At));
        fires.into_iter().for_each(|fire| self.fires.push(record, fire));
    }

    /// Notes what was decided for a schedule; answers the runs that start, with
    /// their nominal times.
    pub(super) fn fire(
        &mut self,
        record: &ScheduleRecord,
        firing: Firing,
    ) -> Vec<(Timestamp, NewRun)> {
        self.put(record, firing.dequeued.iter().chain(&firing.fires));
        if let Some(fire) = &firing.dequeued {
            self.dequeued.0.push(record.id.0.cast_signed());
            self.dequeued.1.push(At(fire.nominal));
        }
        firing.starts
    }

    /// Notes that a schedule was changed, and what that left behind.
    pub(super) fn change(&mut self, record: &ScheduleRecord, left: &Left) {
        self.put(record, &left.missed);
        if left.is_dequeued {
            self.skipped.push(record.id.0.cast_signed());
        }
    }

    pub(super) fn write(self, writes: &mut Writes<'_>, now: Timestamp) {
        if self.ids.is_empty() {
            return;
        }
        let times = params![self.ids, self.states, self.nexts, self.dues, self.lasts, self.queued];
        writes.push(&sql::ADVANCE_SCHEDULES, times);
        if !self.dequeued.0.is_empty() {
            writes.push(&sql::DEQUEUE_FIRES, params![self.dequeued.0, self.dequeued.1]);
        }
        if !self.skipped.is_empty() {
            writes.push(&sql::SKIP_QUEUED_FIRES, params![self.skipped]);
        }
        if !self.closed.is_empty() {
            writes.push(&sql::CLOSE_FIRES, params![self.closed]);
        }
        self.fires.write(writes, now);
    }
}
