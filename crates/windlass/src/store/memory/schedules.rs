//! Schedules, and what they start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use async_trait::async_trait;
use windlass_core::schedule::Cadence;
use windlass_core::{
    LaneKeys, Overlap, RunId, RunState, ScheduleId, ScheduleOwner, Tenant, Timestamp,
};

use super::state::State;
use super::{MISTAKE_GAP, MemoryStore};
use crate::planted::PlantedBug;
use crate::store::schedules::{FIRES_MAX, Firing, Left, QUEUE_PAUSE, taken, too_many};
use crate::store::{
    Backfilled, FIRES_KEPT, Fire, FireBy, FireResult, NewRun, NewSchedule, PAGE_MAX, SCHEDULES_MAX,
    ScheduleFilter, ScheduleKey, SchedulePage, ScheduleRecord, ScheduleState, ScheduleStore,
    Started, StoreError, Sweep,
};

/// All schedules.
#[derive(Default)]
pub(super) struct Schedules {
    all: BTreeMap<ScheduleKey, Kept>,
    /// The number of the newest.
    last_id: u64,
}

/// A schedule with its history, the oldest line first.
struct Kept {
    record: ScheduleRecord,
    fires: VecDeque<Fire>,
    /// The runs that may not be over, where that matters.
    open: BTreeSet<RunId>,
}

impl Kept {
    fn write(&mut self, fires: impl IntoIterator<Item = Fire>) {
        let is_free = self.record.schedule.timing.overlap == Overlap::Allow;
        for fire in fires {
            self.open.extend(fire.result.run().filter(|_| !is_free));
            self.fires.push_back(fire);
        }
        let surplus = self.fires.len().saturating_sub(FIRES_KEPT);
        self.fires.drain(..surplus);
    }

    /// Writes what a change of it leaves behind.
    fn leave(&mut self, left: Left) {
        if left.is_dequeued {
            let queued = |fire: &&mut Fire| fire.result == FireResult::Queued;
            let queued = self.fires.iter_mut().filter(queued);
            queued.for_each(|fire| fire.result = FireResult::Overlapped);
        }
        self.write(left.missed);
    }

    /// The runs that may be under way, as far as that matters: those that were never over, and those
    /// of the history, which may be under way again.
    fn suspects(&self) -> BTreeSet<RunId> {
        let is_free = self.record.schedule.timing.overlap == Overlap::Allow;
        let past = self.fires.iter().filter_map(|fire| fire.result.run()).filter(|_| !is_free);
        self.open.iter().copied().chain(past).collect()
    }
}

impl Schedules {
    /// How many a tenant has.
    pub(super) fn count_of(&self, tenant: &Tenant) -> usize {
        self.all.keys().filter(|key| key.tenant == *tenant).count()
    }

    fn get_mut(&mut self, key: &ScheduleKey) -> Result<&mut Kept, StoreError> {
        self.all.get_mut(key).ok_or_else(|| key.not_found())
    }

    /// When the next nominal time is served, or a run may be over that one waits for.
    pub(super) fn next_at(&self, now: Timestamp) -> Option<Timestamp> {
        let active = self.all.values().map(|kept| &kept.record);
        let active = active.filter(|record| record.state == ScheduleState::Active);
        let times = |record: &ScheduleRecord| {
            [record.due_at(), record.queued_at.map(|_| now + QUEUE_PAUSE)]
        };
        active.flat_map(times).flatten().min()
    }
}

impl State {
    fn put_schedule(&mut self, schedule: NewSchedule) -> Result<ScheduleRecord, StoreError> {
        schedule.check(self.shared.payload_limit).map_err(StoreError::Conflict)?;
        if !self.definitions.contains_key(&(schedule.workflow.clone(), schedule.version)) {
            let what = format!("workflow {:?} version {}", schedule.workflow, schedule.version);
            return Err(StoreError::NotFound(what));
        }
        let now = self.shared.now;
        let all = &mut self.schedules;
        let tenant = &schedule.key.tenant;
        let count = all.all.keys().filter(|key| key.tenant == *tenant).count();
        let record = match all.all.get_mut(&schedule.key) {
            Some(kept) => {
                let left = kept.record.replace(schedule, now);
                kept.leave(left);
                kept.record.clone()
            }
            None if count >= SCHEDULES_MAX => return Err(too_many(&schedule.key.tenant)),
            None => {
                let (key, open) = (schedule.key.clone(), BTreeSet::new());
                let record = ScheduleRecord::new(ScheduleId(all.last_id + 1), schedule, now)?;
                all.last_id += 1;
                all.all.insert(key, Kept { record: record.clone(), fires: VecDeque::new(), open });
                record
            }
        };
        self.shared.wakes.timers = true;
        Ok(record)
    }

    /// Why no run of a schedule can be started, if none can.
    fn refusal(&self, start: &NewRun) -> Option<String> {
        let key = (start.workflow.clone(), start.version);
        let Some(known) = self.definitions.get(&key) else {
            return Some(format!("workflow {:?} version {} is not registered", key.0, key.1));
        };
        let lanes =
            LaneKeys::of(&known.definition, &start.input).err().map(|error| error.to_string());
        start.check(self.shared.payload_limit).err().or(lanes)
    }

    fn is_running(&self, run: RunId) -> bool {
        self.runs.get(&run).is_some_and(|run| run.state == RunState::Running)
    }

    /// Starts the runs of schedules whose time has come, in the order of their nominal times.
    pub(super) fn fire_schedules(&mut self, limit: usize) -> Result<Sweep, StoreError> {
        let now = self.shared.now;
        let is_due = |kept: &&Kept| {
            let record = &kept.record;
            let is_due = record.due_at().is_some_and(|at| at <= now);
            record.state == ScheduleState::Active && (is_due || record.queued_at.is_some())
        };
        let due = self.schedules.all.values().filter(is_due);
        let mut due: Vec<_> = due
            .map(|kept| {
                let due_at = kept.record.due_at().unwrap_or(Timestamp::MAX);
                (due_at, kept.record.id, kept.record.schedule.key.clone())
            })
            .collect();
        due.sort();
        let (mut moved, mut starts) = (0, Vec::new());
        for (_, _, key) in due {
            if moved < limit {
                let most = (limit - moved).min(FIRES_MAX);
                moved += self.fire_schedule(&key, most, &mut starts)?;
            }
        }
        starts.sort_by_key(|(nominal, _)| *nominal);
        for (_, start) in starts {
            self.start(start)?;
        }
        Ok(Sweep { at: now, moved, next_at: self.schedules.next_at(now) })
    }

    /// Does what is due for one schedule, but for the runs that it starts; answers how many lines
    /// that has in its history.
    fn fire_schedule(
        &mut self,
        key: &ScheduleKey,
        limit: usize,
        all_starts: &mut Vec<(Timestamp, NewRun)>,
    ) -> Result<usize, StoreError> {
        let now = self.shared.now;
        let kept = self.schedules.get_mut(key)?;
        let mut record = kept.record.clone();
        let open = std::mem::take(&mut kept.open);
        let suspects = kept.suspects();
        let is_running = |run: &RunId| self.is_running(*run);
        let open: BTreeSet<RunId> = open.into_iter().filter(is_running).collect();
        let under_way: BTreeSet<RunId> =
            suspects.union(&open).copied().filter(is_running).collect();
        let nominal = record.queued_at.or(record.next_at).unwrap_or(now);
        let refusal =
            self.refusal(&record.schedule.start(RunId::of_fire(record.id, nominal), nominal));
        let Firing { starts, cancels, mut dequeued, mut fires } =
            record.fire(now, limit, !under_way.is_empty(), refusal.as_deref());
        if cancels {
            for run in &under_way {
                let reason = format!("schedule {:?} fired again", key.name);
                self.cancel_run(*run, Some(reason))?;
            }
        }
        for (nominal, start) in starts {
            match self.runs.get(&start.id) {
                None => all_starts.push((nominal, start)),
                Some(run) if run.tenant == start.tenant => {}
                Some(_) => {
                    let all = dequeued.iter_mut().chain(&mut fires);
                    all.filter(|fire| fire.result.run() == Some(start.id)).for_each(|fire| {
                        fire.result = FireResult::Refused(taken(start.id));
                    });
                }
            }
        }
        self.make_mistakes(&mut record);
        let moved = fires.len() + usize::from(dequeued.is_some());
        let kept = self.schedules.get_mut(key)?;
        kept.open.extend(open.into_iter().filter(|_| !cancels));
        kept.record = record;
        if let Some(line) = dequeued {
            let queued =
                |fire: &Fire| fire.nominal == line.nominal && fire.result == FireResult::Queued;
            kept.fires.retain(|fire| !queued(fire));
            kept.write([line]);
        }
        kept.write(fires);
        Ok(moved)
    }

    /// With these bugs, a schedule goes on from when it was served.
    fn make_mistakes(&self, record: &mut ScheduleRecord) {
        let (now, planted) = (self.shared.now, self.shared.planted);
        let timing = &record.schedule.timing;
        let next = record.next_at.and_then(|_| match &timing.cadence {
            Cadence::Every { interval, .. } if planted.has(PlantedBug::FireDrifts) => {
                Some(now + *interval)
            }
            Cadence::Every { .. } | Cadence::Cron { .. } | Cadence::Once(_) => {
                timing.next_after(now).filter(|_| planted.has(PlantedBug::FireSkipsToNow))
            }
        });
        let is_within = |at: &Timestamp| timing.ends_at.is_none_or(|end| *at <= end);
        if planted.has(PlantedBug::FireDrifts) || planted.has(PlantedBug::FireSkipsToNow) {
            record.next_at = next.filter(is_within);
        }
    }

    /// With this bug, the runs of schedules that are due are started, and nothing else is done.
    pub(super) fn start_due(&mut self, salt: u64) -> Result<(), StoreError> {
        let now = self.shared.now;
        let all: Vec<ScheduleRecord> =
            self.schedules.all.values().map(|kept| kept.record.clone()).collect();
        for mut record in all {
            let is_due = record.due_at().is_some_and(|at| at <= now);
            if is_due && record.state == ScheduleState::Active {
                for (place, (_, mut start)) in
                    record.fire(now, FIRES_MAX, false, None).starts.into_iter().enumerate()
                {
                    let number = u128::from(salt) << 32 | place as u128;
                    start.id = RunId::from_parts(now, number << 16 | u128::from(record.id.0));
                    self.start(start)?;
                }
            }
        }
        Ok(())
    }

    /// With this bug, schedules that are due move on, as if their runs had been started.
    pub(super) fn move_on(&mut self) -> Sweep {
        let now = self.shared.now;
        for kept in self.schedules.all.values_mut() {
            let is_due = kept.record.due_at().is_some_and(|at| at <= now);
            if is_due && kept.record.state == ScheduleState::Active {
                let Firing { fires, .. } = kept.record.fire(now, FIRES_MAX, false, None);
                kept.write(fires);
            }
        }
        Sweep { at: now, moved: 0, next_at: self.schedules.next_at(now) }
    }

    fn trigger_schedule(&mut self, key: &ScheduleKey, run: RunId) -> Result<Started, StoreError> {
        let now = self.shared.now;
        let start = self.schedules.get_mut(key)?.record.schedule.start(run, now);
        let started = self.start(start)?;
        if started.is_new {
            let result = FireResult::Started(run);
            let fire = Fire { nominal: now, by: FireBy::Trigger, result, at: now };
            self.schedules.get_mut(key)?.write([fire]);
        }
        Ok(started)
    }

    fn backfill_schedule(
        &mut self,
        key: &ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, StoreError> {
        let now = self.shared.now;
        let kept = self.schedules.get_mut(key)?;
        let record = kept.record.clone();
        let is_started = |nominal: Timestamp| {
            let id = RunId::of_fire(record.id, nominal);
            kept.fires.iter().any(|fire| fire.result.run() == Some(id))
        };
        let times = record.past(from, until, now)?;
        let (known, times): (Vec<_>, Vec<_>) =
            times.into_iter().partition(|nominal| is_started(*nominal));
        let mut backfilled = Backfilled { started: 0, existing: known.len() };
        let mut starts = Vec::new();
        for nominal in times {
            let id = RunId::of_fire(record.id, nominal);
            match self.runs.get(&id) {
                Some(run) if run.tenant != key.tenant => {
                    return Err(StoreError::Conflict(taken(id)));
                }
                // Also one that was started with another input, before that was changed.
                Some(_) => backfilled.existing += 1,
                None if self.retention.archived(id).is_some() => backfilled.existing += 1,
                None => starts.push(nominal),
            }
        }
        for nominal in starts {
            let id = RunId::of_fire(record.id, nominal);
            self.start(record.schedule.start(id, nominal))?;
            let result = FireResult::Started(id);
            let fire = Fire { nominal, by: FireBy::Backfill, result, at: now };
            self.schedules.get_mut(key)?.write([fire]);
            backfilled.started += 1;
        }
        Ok(backfilled)
    }
}

#[async_trait]
impl ScheduleStore for MemoryStore {
    async fn put_schedule(&self, schedule: NewSchedule) -> Result<ScheduleRecord, StoreError> {
        self.transact(|state| state.put_schedule(schedule))
    }

    async fn get_schedule(&self, key: ScheduleKey) -> Result<Option<ScheduleRecord>, StoreError> {
        let record = |state: &mut State| Some(state.schedules.all.get(&key)?.record.clone());
        Ok(self.transact(record))
    }

    async fn list_schedules(&self, filter: ScheduleFilter) -> Result<SchedulePage, StoreError> {
        let ScheduleFilter { tenant, after, limit } = filter;
        let limit = if limit == 0 { PAGE_MAX } else { limit.min(PAGE_MAX) };
        let is_wanted = |(key, _): &(&ScheduleKey, &Kept)| {
            after.as_ref().is_none_or(|after| *key > after)
                && tenant.as_ref().is_none_or(|tenant| key.tenant == *tenant)
        };
        Ok(self.transact(|state| {
            let all = state.schedules.all.iter().filter(is_wanted);
            let schedules: Vec<ScheduleRecord> =
                all.take(limit).map(|(_, kept)| kept.record.clone()).collect();
            let last = schedules.last().filter(|_| schedules.len() == limit);
            let next = last.map(|record| record.schedule.key.clone());
            SchedulePage { schedules, unreadable: Vec::new(), next }
        }))
    }

    async fn pause_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.transact(|state| {
            let kept = state.schedules.get_mut(&key)?;
            let left = kept.record.pause(state.shared.now);
            kept.leave(left);
            Ok(())
        })
    }

    async fn resume_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.transact(|state| {
            state.schedules.get_mut(&key)?.record.resume(state.shared.now);
            state.shared.wakes.timers = true;
            Ok(())
        })
    }

    async fn delete_schedule(&self, key: ScheduleKey) -> Result<(), StoreError> {
        self.transact(|state| state.schedules.all.remove(&key));
        Ok(())
    }

    async fn disable_schedules(
        &self,
        owner: ScheduleOwner,
        tenant: Option<Tenant>,
        declared: Vec<ScheduleKey>,
    ) -> Result<Vec<ScheduleKey>, StoreError> {
        Ok(self.transact(|state| {
            let mut disabled = Vec::new();
            for (key, kept) in &mut state.schedules.all {
                let is_its = kept.record.schedule.owner.as_ref() == Some(&owner);
                let is_its = is_its && tenant.as_ref().is_none_or(|tenant| key.tenant == *tenant);
                let is_active = kept.record.state == ScheduleState::Active;
                if is_its && is_active && !declared.contains(key) {
                    let left = kept.record.disable(state.shared.now);
                    kept.leave(left);
                    disabled.push(key.clone());
                }
            }
            disabled
        }))
    }

    async fn trigger_schedule(&self, key: ScheduleKey, run: RunId) -> Result<Started, StoreError> {
        self.transact(|state| state.trigger_schedule(&key, run))
    }

    async fn backfill_schedule(
        &self,
        key: ScheduleKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Backfilled, StoreError> {
        self.transact(|state| state.backfill_schedule(&key, from, until))
    }

    async fn list_fires(&self, key: ScheduleKey, limit: usize) -> Result<Vec<Fire>, StoreError> {
        self.transact(|state| {
            let fires = &state.schedules.get_mut(&key)?.fires;
            Ok(fires.iter().rev().take(limit).cloned().collect())
        })
    }

    async fn fire_schedules(&self, limit: usize) -> Result<Sweep, StoreError> {
        if self.planted.has(PlantedBug::FireInTwoSteps) {
            self.transact(|state| {
                let salt = state.shared.now.as_micros().cast_unsigned();
                state.start_due(salt)
            })?;
            tokio::time::sleep(MISTAKE_GAP).await;
            return Ok(self.transact(|state| state.move_on()));
        }
        self.transact(|state| state.fire_schedules(limit))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windlass_core::definition::TaskDraft;
    use windlass_core::{
        DefinitionDraft, Payload, Priority, ScheduleName, TaskKind, Timing, Version, WorkflowName,
    };

    use super::*;

    fn schedule(tenant: &str, number: usize) -> NewSchedule {
        let cadence = Cadence::every(Duration::from_secs(3_600)).unwrap();
        NewSchedule {
            key: ScheduleKey {
                tenant: Tenant::new(tenant).unwrap(),
                name: ScheduleName::new(number.to_string()).unwrap(),
            },
            workflow: WorkflowName::new("w").unwrap(),
            version: Version::FIRST,
            input: Payload::default(),
            priority: Priority::default(),
            timing: Timing::new(cadence),
            owner: None,
        }
    }

    #[test]
    fn each_tenant_has_its_own_limit_of_schedules() {
        let mut state = State::new(Timestamp::from_micros(0), Default::default());
        let draft = DefinitionDraft::new("w").task(TaskDraft::new("a", TaskKind::Handler));
        state.register_all(vec![std::sync::Arc::new(draft.build().unwrap())]).unwrap();
        for number in 0..SCHEDULES_MAX {
            state.put_schedule(schedule("acme", number)).unwrap();
        }
        let over = state.put_schedule(schedule("acme", SCHEDULES_MAX));
        assert!(matches!(over, Err(StoreError::Conflict(_))), "{over:?}");
        assert!(state.put_schedule(schedule("acme", 7)).is_ok(), "it is there already");
        assert!(state.put_schedule(schedule("bolt", 1)).is_ok());
    }
}
