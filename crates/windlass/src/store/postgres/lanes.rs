//! Slots in the lanes of limits: given up by tasks that end, given to those who wait.
//!
//! A verb that ends limited tasks, or that makes some ready, locks their lanes once it knows
//! them all, reads who is there, lets [`windlass_core::Lanes`] decide, and writes what came of
//! it with everything else. Whoever gets a slot that way is a task of another run, which nobody
//! else lets go on while the lane is locked: so the run itself is not locked. A task that needs
//! slots in other lanes as well is let go on if those can be locked without waiting, and left to
//! the next sweep otherwise.
//!
//! Lanes are waited for once in a verb, in the order of their numbers. What asks for a slot only
//! because another was skipped is a task of the same run, whose lanes are locked with the first.

mod read;
mod rows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;

use windlass_core::lane::{Admitted, Changes, Need, PlaceMove, Verdict, WhenFull};
use windlass_core::{
    Decision, Fence, LaneId, LaneKeys, Lanes, RunId, RunState, TaskCommand, TaskEventKind, TaskId,
    TaskIndex, TaskState, Timestamp,
};

use self::rows::LaneRow;
use super::PostgresStore;
use super::children::Note;
use super::deadlines::busy_runs;
use super::fault::Fault;
use super::pool::Tx;
use super::run::{AttemptEnd, Moves, Narrow, Run};
use super::statements as sql;
use super::unsound;
use super::work::{Work, corrupt, pairs, sorted_ids, task_id};
use crate::store::{SUPERSEDED, StoreError};

/// How many sweeps in a row leave out runs whose lanes others have, before one waits for them: so
/// often within half a second, by the pause of sweeps that find something in the hands of others.
const PASSED_OVER_MAX: u32 = 10;

/// The lanes that a verb has locked, and what became of them.
#[derive(Default)]
pub(super) struct LaneWork {
    book: Lanes,
    rows: BTreeMap<LaneId, LaneRow>,
    /// The numbers of the locks.
    locked: BTreeSet<i32>,
    /// Tasks whose lanes were read.
    read: BTreeSet<TaskId>,
    /// Up to which place those who wait in lanes were read.
    looked: BTreeMap<LaneId, u64>,
    /// Lanes of which it is known who came first, where newcomers take the place of the oldest.
    with_rivals: BTreeSet<LaneId>,
    changed: BTreeSet<LaneId>,
    places: Vec<PlaceMove>,
    /// Tasks whose places others have, and whether they only waited.
    superseded: Vec<(TaskId, LaneId, bool)>,
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

impl Run {
    /// Tells the limits of a task how an attempt has ended.
    pub(super) fn end_attempt(
        &mut self,
        moves: &mut Moves,
        index: TaskIndex,
        decision: &Decision,
    ) -> Result<(), StoreError> {
        if !self.definition.task(index).has_metered_limits() {
            return Ok(());
        }
        if let Some(is_failure) = decision.attempt_failed() {
            let is_retried = !self.task(index)?.state.is_final();
            moves.attempts.push(AttemptEnd { task: self.task_id(index), is_failure, is_retried });
        }
        Ok(())
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
        let rows = read::lane_rows(tx.names(), lanes)?;
        let numbers: BTreeSet<i32> = rows.iter().map(|(_, row)| row.lock()).collect();
        let new: Vec<i32> = numbers.difference(&work.lanes.locked).copied().collect();
        tx.query(&sql::LOCK_LANES, &[&new]).await?;
        work.lanes.locked.extend(new);
        Ok(())
    }

    /// Locks the lanes of locked runs as far as nobody else has them, and leaves out the runs of
    /// which it has not all: a sweep has locked timers of tasks that whoever has a lane lets go
    /// on, so it had better not wait for lanes. Where lanes are always in the hands of others, it
    /// waits for them now and then; if two then wait for each other, the server ends one, which
    /// is repeated.
    pub(super) async fn lock_free_lanes_of_runs(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
    ) -> Result<(), Fault> {
        if self.passed_over.load(Ordering::Relaxed) >= PASSED_OVER_MAX {
            self.passed_over.store(0, Ordering::Relaxed);
            let all: Vec<RunId> = work.runs.keys().copied().collect();
            return self.lock_lanes(tx, work, all).await;
        }
        let mut of_runs: BTreeMap<RunId, BTreeSet<i32>> = BTreeMap::new();
        for run in work.runs.values() {
            let tasks = run.limited();
            if !tasks.is_empty() {
                let rows = read::lane_rows(tx.names(), work.lanes_of(&tasks))?;
                of_runs.insert(run.id, rows.iter().map(|(_, row)| row.lock()).collect());
            }
        }
        if of_runs.is_empty() {
            return Ok(());
        }
        let all: BTreeSet<i32> = of_runs.values().flatten().copied().collect();
        let all: Vec<i32> = all.into_iter().collect();
        let locked = tx.query(&sql::LOCK_FREE_LANES, &[&all]).await?;
        work.lanes.locked.extend(locked.iter().map(|row| row.get::<_, i32>(0)));
        let is_whole = |run: &RunId| {
            of_runs.get(run).is_none_or(|numbers| numbers.is_subset(&work.lanes.locked))
        };
        let count = work.runs.len();
        work.runs.retain(|run, _| is_whole(run));
        match work.runs.len() < count {
            true => drop(self.passed_over.fetch_add(1, Ordering::Relaxed)),
            false => self.passed_over.store(0, Ordering::Relaxed),
        }
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
            let attempts = std::mem::take(&mut work.moves.attempts);
            let mut halted = std::mem::take(&mut work.moves.halted);
            halted.retain(|task| work.has_meters(*task));
            let mut tasks: Vec<TaskId> = attempts.iter().map(|end| end.task).collect();
            tasks.extend(vacated.iter().chain(&visits).chain(&new).chain(&halted));
            if tasks.is_empty() && requests.is_empty() && !work.lanes.book.is_open() {
                break;
            }
            self.load_lanes(tx, work, &tasks).await?;
            requests.extend(new);
            let now = work.now;
            for AttemptEnd { task, is_failure, is_retried } in attempts {
                work.lanes.book.report(task, is_failure, now);
                if is_retried {
                    work.lanes.book.end_attempt(task);
                }
            }
            // What is given for one attempt is not kept with the slots.
            for task in halted {
                work.lanes.book.end_attempt(task);
            }
            for task in &vacated {
                work.check_places(*task)?;
                work.lanes.book.vacate(*task);
            }
            self.admit_waiters(tx, work).await?;
            if let Some(task) = requests.pop_front() {
                self.request_slots(tx, work, task).await?;
            }
        }
        let changes = work.lanes.book.take_changes();
        let Changes { lanes, moves, silenced, alarms, superseded } = changes;
        work.lanes.changed.extend(lanes);
        work.lanes.places.extend(moves);
        let silenced = silenced.into_iter().map(|task| (task, Timestamp::MAX));
        for (task, due) in silenced.chain(alarms) {
            work.put_off(task, due);
        }
        work.lanes.superseded.extend(superseded);
        Ok(())
    }

    async fn request_slots(&self, tx: &Tx<'_>, work: &mut Work, id: TaskId) -> Result<(), Fault> {
        let now = work.now;
        let Some(run) = work.runs.get(&id.run) else { return Ok(()) };
        let Some(state) = run.tasks.get(&id.index).map(|task| task.state) else {
            return Err(corrupt(id, "it asks for slots and is not loaded"));
        };
        // The same verb may have ended it, or let it go on when it looked at its lane.
        if state.is_final() || state == TaskState::Ready {
            return Ok(());
        }
        let needs = run.needs(id.index);
        let is_new = run.tasks.get(&id.index).is_some_and(|task| task.fence == Fence(0));
        let verdict = work.lanes.book.request(id, needs, is_new, now);
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
            Verdict::Still => return Ok(()),
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
        let mut all = Vec::new();
        loop {
            let now = work.now;
            let Admitted { ready, stuck, unsettled } = work.lanes.book.admit(now);
            all.extend(ready);
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
                break;
            }
        }
        work.lanes.book.line_up(&mut all);
        for id in all {
            if let Some((run, moves)) = work.run(id.run) {
                run.resume(moves, id.index)?;
            }
        }
        Ok(())
    }

    /// Lets functions of locked runs go on for which something has come that they may wait for.
    /// Who waits in a lane for its next attempt sees it once it has its turn.
    pub(super) async fn resume_waiting(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        tasks: Vec<TaskId>,
    ) -> Result<(), Fault> {
        let is_limited = |task: &&TaskId| {
            let run = work.runs.get(&task.run);
            let spec = run.and_then(|run| run.definition.tasks().get(task.index.as_usize()));
            spec.is_some_and(|spec| !spec.limits.is_empty())
        };
        let limited: BTreeSet<TaskId> = tasks.iter().filter(is_limited).copied().collect();
        let mut blocked = BTreeSet::new();
        if !limited.is_empty() {
            self.lock_lanes(tx, work, limited.iter().map(|task| task.run)).await?;
            let (runs, indices) = pairs(&limited);
            let rows = tx.query(&sql::BLOCKED, &[&runs, &indices]).await?;
            blocked.extend(rows.iter().map(task_id));
        }
        work.load(tx, tasks.iter().copied()).await?;
        for task in tasks {
            // What is due in the same sweep goes on already.
            let is_waiting = work.task(task).is_some_and(|it| it.state == TaskState::Waiting);
            let may_go_on = is_waiting && !blocked.contains(&task);
            if let Some((run, moves)) = work.run(task.run).filter(|_| may_go_on) {
                run.resume(moves, task.index).map_err(unsound::of(task.run))?;
            }
        }
        Ok(())
    }

    /// Cancels locked runs whose places in lanes others have, unless they have given them up.
    /// Answers those that are settled: who is in the hands of a user's transaction is not.
    pub(super) async fn cancel_superseded(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        notes: &[(i64, Note)],
    ) -> Result<BTreeSet<RunId>, Fault> {
        let superseded = notes.iter().filter_map(|(_, note)| match note {
            Note::Superseded { run } => Some(*run),
            Note::ChildEnded { .. }
            | Note::Signalled { .. }
            | Note::Cancelled { .. }
            | Note::Lane { .. } => None,
        });
        let mut runs: BTreeSet<RunId> = superseded.collect();
        runs.retain(|run| work.runs.contains_key(run));
        if runs.is_empty() {
            return Ok(runs);
        }
        let busy = busy_runs(tx, work, runs.iter().copied()).await?;
        runs.retain(|run| !busy.contains(run));
        let rows = tx.query(&sql::SUPERSEDED_RUNS, &[&sorted_ids(runs.iter().copied())]).await?;
        for row in rows {
            let run = RunId::from_uuid(row.get("run_id"));
            if work.runs.get(&run).is_some_and(|run| run.state == RunState::Running) {
                self.cancel_in(tx, work, run, Some(SUPERSEDED)).await?;
            }
        }
        Ok(runs)
    }
}

impl Work {
    /// Someone who waits in a lane is looked at again at another time, if ever.
    fn put_off(&mut self, task: TaskId, due: Timestamp) {
        if self.task(task).is_none_or(|task| task.state != TaskState::Waiting) {
            return;
        }
        match self.moves.scheduled.iter_mut().find(|(one, _)| *one == task) {
            Some((_, at)) => *at = due,
            None => self.moves.scheduled.push((task, due)),
        }
    }

    /// Fails if a task that was ready or running when it was loaded lacks a place in one of its
    /// lanes: it has no slot to release, so the tasks that wait for the slot would wait for ever.
    fn check_places(&self, id: TaskId) -> Result<(), Fault> {
        let stored_in = self.task(id).and_then(|task| task.stored_in);
        let needed = match stored_in {
            Some(Narrow::Leases | Narrow::Ready) => self.needs_of(id).len(),
            Some(Narrow::Timers) | None => 0,
        };
        let held = self.lanes.book.entrants.get(&id).map_or(0, |entrant| entrant.places.len());
        if held < needed {
            let text = format!("it needs slots in {needed} lanes and has places in {held}");
            return Err(corrupt(id, text));
        }
        Ok(())
    }

    fn has_meters(&self, task: TaskId) -> bool {
        let run = self.runs.get(&task.run);
        run.is_some_and(|run| run.definition.task(task.index).has_metered_limits())
    }

    fn needs_of(&self, task: TaskId) -> Vec<Need> {
        self.runs.get(&task.run).map_or_else(Vec::new, |run| run.needs(task.index))
    }

    /// The lanes for which tasks may ask once one of these was skipped: they are locked with the
    /// lanes of those, or two verbs could have what the other comes to want.
    fn lanes_ahead(&self, tasks: &BTreeSet<TaskId>) -> BTreeSet<LaneId> {
        let may_be_skipped = |task: &&TaskId| {
            let is_new = self.task(**task).is_some_and(|it| it.fence == Fence(0));
            let needs = if is_new { self.needs_of(**task) } else { Vec::new() };
            needs.iter().any(|need| need.when_full == WhenFull::Skip)
        };
        let runs = tasks.iter().filter(may_be_skipped).map(|task| task.run);
        let runs: BTreeSet<RunId> = runs.collect();
        let runs = runs.iter().filter_map(|run| self.runs.get(run));
        self.lanes_of(&runs.flat_map(Run::limited).collect::<Vec<_>>())
    }

    fn lanes_of(&self, tasks: &[TaskId]) -> BTreeSet<LaneId> {
        tasks.iter().flat_map(|task| self.needs_of(*task)).map(|need| need.lane).collect()
    }
}
