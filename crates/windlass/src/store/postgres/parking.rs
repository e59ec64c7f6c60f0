//! Functions that are parked, begin afresh, and go on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use windlass_core::{
    Call, Parking, Payload, RunCommand, RunEventKind, RunId, StepKind, StepName, StepRecord,
    TaskCommand, TaskEventKind, TaskId, TaskIndex, Timestamp,
};

use super::children::count_open;
use super::fault::Fault;
use super::journal::{Steps, load_steps, merged};
use super::keys::signalled;
use super::pool::Tx;
use super::run::{Moves, Run};
use super::statements as sql;
use super::work::{Work, sorted_ids};
use crate::store::{Mailbox, StoreError};

/// What is known of functions that are to be parked.
#[derive(Default)]
pub(super) struct Parked {
    steps: Steps,
    /// How many children of calls are open.
    open: HashMap<(TaskId, Call), u32>,
    /// The names of signals to runs that wait.
    signals: HashSet<(RunId, StepName)>,
    /// Where signals to keys come that functions wait for.
    mailboxes: HashMap<(TaskId, Call), Mailbox>,
    /// Those of them in which one is.
    signalled: HashSet<Mailbox>,
}

impl Parked {
    /// Loads what is needed to park functions of locked runs.
    pub(super) async fn load(
        tx: &Tx<'_>,
        work: &Work,
        parkings: impl Iterator<Item = (TaskId, &Parking)> + Clone,
    ) -> Result<Parked, Fault> {
        let tasks: BTreeSet<TaskId> = parkings.clone().map(|(task, _)| task).collect();
        if tasks.is_empty() {
            return Ok(Parked::default());
        }
        let steps = load_steps(tx, &tasks).await?;
        let new = parkings
            .clone()
            .filter(|(_, parking)| parking.steps.iter().any(|step| step.kind == StepKind::Child));
        let mut parents: BTreeSet<TaskId> = new.map(|(task, _)| task).collect();
        let waits = |(_, known): &(&TaskId, &BTreeMap<Call, StepRecord>)| {
            known.values().any(|step| step.children_max().is_some())
        };
        parents.extend(steps.iter().filter(waits).map(|(task, _)| *task));
        let open = match parents.is_empty() {
            true => HashMap::new(),
            false => count_open(tx, &parents).await?,
        };
        let mut parked = Parked { steps, open, ..Parked::default() };
        let waiting = parkings.filter(|(_, parking)| parking.awaits);
        let runs: Vec<RunId> = waiting.clone().map(|(task, _)| task.run).collect();
        if runs.is_empty() {
            return Ok(parked);
        }
        for (task, parking) in waiting {
            parked.find_mailboxes(work, task, parking);
        }
        let mailboxes = parked.mailboxes.values().cloned().collect();
        parked.signalled = signalled(tx, &mailboxes, work.now).await?;
        let rows = tx.query(&sql::SIGNAL_NAMES, &[&sorted_ids(runs)]).await?;
        for row in rows {
            let run = RunId::from_uuid(row.get("run_id"));
            if let Ok(name) = StepName::new(row.get::<_, &str>("name")) {
                parked.signals.insert((run, name));
            }
        }
        Ok(parked)
    }

    /// Notes where signals to keys come that a function is to wait for.
    fn find_mailboxes(&mut self, work: &Work, task: TaskId, parking: &Parking) {
        let known = self.steps.get(&task);
        let new = parking.steps.iter().filter_map(|step| StepRecord::after(None, step, work.now));
        let old = parking.waits.iter().filter_map(|call| known?.get(call).cloned());
        for step in new.chain(old) {
            if let Some(mailbox) = work.awaited(task.run, &step) {
                self.mailboxes.insert((task, step.call), mailbox);
            }
        }
    }

    /// What follows when a function waits like this; `None` if it cannot.
    pub(super) fn judge(&self, task: TaskId, parking: &Parking, now: Timestamp) -> Option<Judged> {
        let known = self.steps.get(&task);
        let until = parking.due(now, |call| known?.get(&call));
        if !parking.awaits && until.is_none() {
            return None;
        }
        let new = merged(known, &parking.steps, now)?;
        let waits = |record: &&StepRecord| parking.waits.contains(&record.call);
        let old = known.into_iter().flat_map(BTreeMap::values);
        let all = old.clone().filter(waits).chain(&new);
        // What the function does not wait for any more would wake it for nothing.
        let is_new = |call: Call| parking.steps.iter().any(|step| step.call == call);
        let is_left = |record: &&StepRecord| {
            record.number().is_none() && !waits(record) && !is_new(record.call)
        };
        let left = old.filter(is_left).map(|record| record.call).collect();
        let enough = |record: &StepRecord| {
            let open = self.open.get(&(task, record.call)).copied().unwrap_or(0);
            record.children_max().is_some_and(|most| open <= most)
        };
        let mailbox = |record: &StepRecord| {
            let mailbox = self.mailboxes.get(&(task, record.call))?;
            record.number().is_none().then_some(mailbox)
        };
        let is_there = |record: &StepRecord| {
            if record.kind == StepKind::Child {
                return enough(record);
            }
            if record.key.is_some() {
                return mailbox(record).is_some_and(|mailbox| self.signalled.contains(mailbox));
            }
            record.kind == StepKind::Signal
                && record.number().is_none()
                && self.signals.contains(&(task.run, record.name.clone()))
        };
        let is_there = parking.awaits && all.clone().any(is_there);
        // A call that is named twice waits once.
        let keys = all.filter_map(|record| Some((record.call, mailbox(record)?.clone())));
        let keys: BTreeMap<Call, Mailbox> = keys.collect();
        Some(Judged { awaits: parking.awaits, until, keys, steps: new, left, is_there })
    }
}

/// A function that can be parked.
pub(super) struct Judged {
    awaits: bool,
    /// When it goes on if nothing happens before.
    until: Option<Timestamp>,
    /// The calls that wait for signals to keys.
    keys: BTreeMap<Call, Mailbox>,
    /// What is recorded.
    steps: Vec<StepRecord>,
    /// The calls that it does not wait for any more.
    left: Vec<Call>,
    /// Whether what it waits for is there already.
    is_there: bool,
}

impl Run {
    /// Lets a function wait. Its steps are written by the caller's [`Work`].
    pub(super) fn park(
        &mut self,
        moves: &mut Moves,
        index: TaskIndex,
        judged: Judged,
    ) -> Result<(), StoreError> {
        let id = self.task_id(index);
        let Judged { awaits, until, keys, steps, left, is_there } = judged;
        moves.left.extend(left.into_iter().map(|call| (id, call)));
        self.task(index)?.attempt = 0;
        let command = if awaits { TaskCommand::Await } else { TaskCommand::Sleep };
        self.move_task(moves, index, command, TaskEventKind::Parked { until })?;
        moves.steps.extend(steps.into_iter().map(|step| (id, step)));
        if is_there {
            return self.resume(moves, index);
        }
        moves.scheduled.push((id, until.unwrap_or(Timestamp::MAX)));
        moves.key_waits.extend(keys.into_iter().map(|(call, mailbox)| (id, call, mailbox)));
        Ok(())
    }

    /// The only task of the run begins afresh with another input.
    pub(super) fn begin_afresh(
        &mut self,
        moves: &mut Moves,
        now: Timestamp,
        index: TaskIndex,
        input: Payload,
    ) -> Result<(), StoreError> {
        let id = self.task_id(index);
        self.round += 1;
        let round = self.round;
        let task = self.task(index)?;
        task.attempt = 0;
        task.failure = None;
        task.is_changed = true;
        moves.reset.push((id, None));
        moves.steps.push((id, StepRecord::input(round, input)));
        self.move_task(moves, index, TaskCommand::Continue, TaskEventKind::Continued)?;
        let kind = RunEventKind::Continued { round };
        self.move_run(moves, now, RunCommand::Continue, kind)?;
        moves.enqueued.push(id);
        Ok(())
    }

    /// What a function waited for has come.
    pub(super) fn resume(&mut self, moves: &mut Moves, index: TaskIndex) -> Result<(), StoreError> {
        // Its time has come in the same sweep, and it is about to be asked whether it has its slots.
        if moves.requests.contains(&self.task_id(index)) {
            return Ok(());
        }
        self.move_task(moves, index, TaskCommand::Resume, TaskEventKind::Resumed)?;
        moves.enqueued.push(self.task_id(index));
        Ok(())
    }
}
