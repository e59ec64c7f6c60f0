//! What was scheduled and is due, and what waits for its admission.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use windlass_core::{
    Effect, LaneKeys, Payload, Progress, RunId, TaskId, TaskKind, TaskState, Timestamp,
};

use super::PostgresStore;
use super::children::{Note, notes_of_the_gone};
use super::deadlines::{self, Passed};
use super::fault::Fault;
use super::floors::{Found, Front, Look};
use super::pool::{Params, Tx};
use super::statements as sql;
use super::time::At;
use super::unsound;
use super::work::{Work, sorted_ids, task_id};
use super::writes::params;
use crate::store::{Mandate, StoreError, Sweep};

/// How long ago a timer may have been due that a transaction commits only now. One that
/// takes longer is found by the next sweep.
const LATE_COMMIT: Duration = Duration::from_secs(1);

/// How soon after staged runs were seen others are looked for. Each look that finds none
/// doubles the pause, up to the longest; then only the sweeps remain that come anyway.
const STAGED_PAUSE_MIN: Duration = Duration::from_millis(5);
const STAGED_PAUSE_MAX: Duration = Duration::from_millis(500);

impl PostgresStore {
    pub(super) async fn promote_once(
        &self,
        mandate: Option<&Mandate>,
        limit: usize,
    ) -> Result<Sweep, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let now = self.now_of_sweep(&tx, mandate).await?;
        // Neither backlog keeps the other waiting.
        let (rows, first) = self.due(&tx, now, limit).await?;
        let mut due: Vec<TaskId> = rows.iter().map(task_id).collect();
        let most = limit - due.len().min(limit / 2);
        let (waiting, has_more) = self.staged(&tx, now, most).await?;
        let Waiting { mut staged, mut notes, passed } = waiting;
        due.truncate(limit - staged.len() - notes.len());
        let passed = self.sound(passed, |one| one.run);
        self.children_to_cancel(&tx, &mut notes, limit).await?;
        notes.retain(|(_, note)| !note.runs().iter().any(|run| self.unsound.has(*run)));
        // What is cancelled by this very sweep does not become ready before.
        let cancelled = notes.iter().filter_map(|(_, note)| match note {
            Note::Cancelled { children, .. } => Some(children),
            Note::ChildEnded { .. }
            | Note::Signalled { .. }
            | Note::Superseded { .. }
            | Note::Lane { .. } => None,
        });
        let cancelled: BTreeSet<RunId> = cancelled.flatten().copied().collect();
        due.retain(|task| !cancelled.contains(&task.run));
        let due = self.sound(due, |task| task.run);
        staged.retain(|_, one| !self.unsound.has(one.run));
        let found = due.len() + staged.len() + notes.len() + passed.len();
        let pause = self.staged_watch.see(!staged.is_empty());
        let runs = due.iter().map(|task| task.run).chain(staged.values().map(|one| one.run));
        let runs = runs.chain(notes.iter().flat_map(|(_, note)| note.runs()));
        let runs = runs.chain(passed.iter().map(|one| one.run));
        let mut work = Work::lock_free(&tx, now, runs).await?;
        let refused = self.read_lane_keys(&tx, &mut work, &staged).await?;
        self.lock_free_lanes_of_runs(&tx, &mut work).await?;
        let mut moved = 0;
        // Of a run to which nothing else happens, the timers say all that is needed.
        let others: BTreeSet<RunId> = staged
            .values()
            .map(|one| one.run)
            .chain(notes.iter().flat_map(|(_, note)| note.runs()))
            .chain(passed.iter().map(|one| one.run))
            .collect();
        let alone = rows.iter().filter(|row| !others.contains(&task_id(row).run));
        alone.for_each(|row| work.remember_due(row));
        work.load(&tx, due.iter().copied()).await?;
        // Neither does what has missed its deadline.
        let (expired, missed) = self.expire(&tx, &mut work, &passed).await?;
        let superseded = self.cancel_superseded(&tx, &mut work, &notes).await?;
        // A sleep ends when it is due, and ends well; whatever else is due ends nothing.
        let is_sleep = |id: &TaskId| {
            let task = work.task(*id).filter(|task| is_due(task.state));
            let run = work.runs.get(&id.run).filter(|_| task.is_some());
            run.is_some_and(|run| matches!(run.definition.task(id.index).kind, TaskKind::Sleep(_)))
        };
        let sleeps = due.iter().copied().filter(is_sleep);
        let mut ends: Vec<_> = sleeps.map(|task| (task, TaskState::Succeeded)).collect();
        ends.sort_unstable();
        work.load_for_ends(&tx, &ends).await?;
        for task in &due {
            if !work.task(*task).is_some_and(|task| is_due(task.state)) {
                continue;
            }
            if ends.binary_search(&(*task, TaskState::Succeeded)).is_ok() {
                // What an earlier one changed may have made more of the run necessary.
                work.load_for_ends(&tx, &[(*task, TaskState::Succeeded)]).await?;
            }
            if let Some((run, moves)) = work.run(task.run) {
                run.promote(moves, now, task.index).map_err(unsound::of(task.run))?;
                moved += 1;
            }
        }
        let mut admitted = self.admit(&tx, &mut work, staged, &refused).await?;
        admitted.extend(self.deliver(&tx, &mut work, &notes, &superseded).await?);
        admitted.extend(notes_of_the_gone(&tx, &work, &notes).await?);
        // A deadline that was kept is done with, and nothing has moved by it.
        let done = moved + admitted.len() + expired.len();
        moved += admitted.len() + missed;
        self.settle(&tx, &mut work).await?;
        let mut writes = work.writes(tx.names())?;
        if !admitted.is_empty() {
            writes.push(&sql::DELETE_STAGED, params![admitted]);
        }
        deadlines::forget(&mut writes, now, &expired);
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        writes.push(&sql::EXPIRE_KEY_SIGNALS, params![At(now), most]);
        writes.push(&sql::FORGET_LANES, params![At(now), most]);
        writes.push(&sql::NEXT_DUE, params![At(first)]);
        let rows = self.conclude_with(tx, &work, writes).await?;
        let next = rows.last().map(Vec::as_slice).unwrap_or_default();
        let mut next_at = next.first().and_then(|row| row.get::<_, Option<At>>(0)).map(|at| at.0);
        if done < limit {
            // What is due and was not moved is in the hands of others.
            next_at = next_at.map(|at| if at <= now { now + self.busy_pause() } else { at });
        }
        let again = match pause {
            _ if has_more && done == found => Some(Duration::ZERO),
            _ if has_more || done < found => Some(self.busy_pause()),
            pause => pause,
        };
        let again = again.map(|pause| now + pause);
        let next_at = [next_at, again].into_iter().flatten().min();
        Ok(Sweep { at: now, moved, next_at })
    }

    /// The timers that are due, the earliest first, and the time before which there is none.
    async fn due(
        &self,
        tx: &Tx<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<(Vec<Row>, Timestamp), Fault> {
        let from = self.floors.get(Front::Timers, Found::TooLittle);
        if limit == 0 {
            return Ok((Vec::new(), Timestamp::from_micros(from)));
        }
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let began = Instant::now();
        let rows = tx
            .query(&sql::DUE_TIMERS, &[&At(Timestamp::from_micros(from)), &At(now), &most])
            .await?;
        let look = Look { front: Front::Timers, from, took: began.elapsed() };
        let late = i64::try_from(LATE_COMMIT.as_micros()).unwrap_or(i64::MAX);
        let since = Timestamp::from_micros(now.as_micros().saturating_sub(late));
        let first = rows.first().map_or(since, |row| row.get::<_, At>("due").0);
        self.floors.learn(look, first.as_micros(), rows.is_empty());
        Ok((rows, first))
    }

    /// Runs that wait for their admission, and notes that wait for their delivery, the oldest
    /// first, and whether there are more; and the deadlines that have passed.
    async fn staged(
        &self,
        tx: &Tx<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<(Waiting, bool), Fault> {
        let from = self.floors.get(Front::Staged, Found::TooLittle);
        let most = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let began = Instant::now();
        let (staged, at): (Params<'_>, _) = (&[&from, &most], At(now));
        let passed: Params<'_> = &[&at, &most];
        let all = [(&sql::TAKE_STAGED, staged), (&sql::DUE_DEADLINES, passed)];
        let [rows, passed] = tx.query_all(all).await?;
        let look = Look { front: Front::Staged, from, took: began.elapsed() };
        if let Some(row) = rows.first() {
            self.floors.learn(look, row.get("seq"), false);
        } else if self.floors.is_dear(look) {
            // Nothing but dead rows: what comes has a higher number than all of them.
            let end = tx.query(&sql::STAGED_END, &[]).await?;
            self.floors.learn(look, end.first().map_or(from, |row| row.get(0)), true);
        }
        let passed = passed.iter().map(Passed::of).collect();
        let mut waiting = Waiting { staged: BTreeMap::new(), notes: Vec::new(), passed };
        for row in rows.iter().take(limit) {
            if let Some(note) = Note::of(row) {
                waiting.notes.push((row.get("seq"), note));
                continue;
            }
            let run = RunId::from_uuid(row.get("run_id"));
            let delay = Duration::from_micros(row.get::<_, i64>("delay_micros").unsigned_abs());
            waiting.staged.insert(row.get("seq"), Staged { run, delay });
        }
        Ok((waiting, rows.len() > limit))
    }

    /// Notes the keys that runs which were started in users' transactions have in lanes. Answers
    /// those that have a value which cannot be a key.
    async fn read_lane_keys(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        staged: &BTreeMap<i64, Staged>,
    ) -> Result<BTreeMap<RunId, String>, Fault> {
        let is_limited = |run: &RunId| {
            let run = work.runs.get(run).filter(|run| !run.state.is_final());
            run.is_some_and(|run| run.definition.has_limits())
        };
        let limited: Vec<RunId> = staged.values().map(|one| one.run).filter(is_limited).collect();
        let mut refused = BTreeMap::new();
        if limited.is_empty() {
            return Ok(refused);
        }
        for row in tx.query(&sql::INPUTS, &[&sorted_ids(limited)]).await? {
            let id = RunId::from_uuid(row.get("id"));
            let Some(run) = work.runs.get_mut(&id) else { continue };
            let input = Payload::from_json(row.get::<_, &str>("input"));
            let input = input.map_err(|error| {
                unsound::of(id)(StoreError::Corrupt(format!("the input of run {id} {error}")))
            })?;
            match LaneKeys::of(&run.definition, &input) {
                Ok(keys) => {
                    run.lane_keys = keys;
                    work.lanes.keyed.push(id);
                }
                Err(error) => {
                    refused.insert(id, error.to_string());
                }
            }
        }
        Ok(refused)
    }

    /// Lets runs that were started in users' transactions into the queues, and answers the
    /// numbers of those that wait no more. One that was cancelled meanwhile is only forgotten.
    async fn admit(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        staged: BTreeMap<i64, Staged>,
        refused: &BTreeMap<RunId, String>,
    ) -> Result<Vec<i64>, Fault> {
        let is_open = |one: &Staged| {
            let run = work.runs.get(&one.run);
            run.is_some_and(|run| !run.state.is_final())
        };
        let roots = |one: &Staged| {
            let (_, effects) = Progress::start(&work.runs.get(&one.run)?.definition);
            let run = one.run;
            let root = move |effect| match effect {
                Effect::Unblock(index) => Some(TaskId { run, index }),
                Effect::Skip(_) | Effect::EndRun(_) => None,
            };
            Some(effects.into_iter().filter_map(root))
        };
        let roots: Vec<TaskId> =
            staged.values().filter(|one| is_open(one)).filter_map(roots).flatten().collect();
        work.load(tx, roots).await?;
        let now = work.now;
        let mut admitted = Vec::new();
        for (seq, one) in staged {
            if let Some(reason) = refused.get(&one.run) {
                self.cancel_in(tx, work, one.run, Some(reason)).await?;
            }
            let Some((run, moves)) = work.run(one.run) else { continue };
            admitted.push(seq);
            if !run.state.is_final() {
                let (_, effects) = Progress::start(&run.definition);
                moves.begun.push(one.run);
                run.apply_effects(moves, now, effects, one.delay).map_err(unsound::of(one.run))?;
            }
        }
        Ok(admitted)
    }
}

/// Whether a task in this state waits for a time.
const fn is_due(state: TaskState) -> bool {
    matches!(state, TaskState::Scheduled | TaskState::Waiting)
}

/// When to look for staged runs, of which no hint may tell: soon after some were seen, since
/// whoever starts runs goes on doing so, and then less and less often until the next sweep
/// that comes anyway is soon enough.
#[derive(Default)]
pub(super) struct StagedWatch {
    /// In microseconds, none if zero.
    pause: AtomicU64,
}

impl StagedWatch {
    /// Looks again soon: a transaction that starts runs is about to be committed. Answers
    /// whether whoever looks is to be woken, and does not do so soon anyway.
    pub(super) fn expect(&self) -> bool {
        let last = self.set(STAGED_PAUSE_MIN);
        last.is_zero() || last > 4 * STAGED_PAUSE_MIN
    }

    fn set(&self, pause: Duration) -> Duration {
        let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.pause.swap(micros, Ordering::Relaxed))
    }

    /// Notes what a sweep saw; answers how long to wait before the next, if it is not to wait
    /// for another reason.
    fn see(&self, has_found: bool) -> Option<Duration> {
        let last = Duration::from_micros(self.pause.load(Ordering::Relaxed));
        let pause = if has_found { STAGED_PAUSE_MIN } else { last };
        let next = if pause < STAGED_PAUSE_MAX { 2 * pause } else { Duration::ZERO };
        self.set(next);
        (!pause.is_zero()).then_some(pause)
    }
}

/// What waits for the next sweep.
struct Waiting {
    staged: BTreeMap<i64, Staged>,
    notes: Vec<(i64, Note)>,
    passed: Vec<Passed>,
}

/// A run that was started in a user's transaction.
struct Staged {
    run: RunId,
    delay: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_runs_are_looked_for_soon_after_some_were_seen_and_then_less_and_less_often() {
        let watch = StagedWatch::default();
        assert_eq!(watch.see(false), None, "nobody stages anything");
        let millis = |pause: Option<Duration>| pause.map_or(0, |pause| pause.as_millis());
        assert_eq!(millis(watch.see(true)), 5);
        assert_eq!(millis(watch.see(true)), 5);
        let pauses: Vec<_> = (0..9).map(|_| millis(watch.see(false))).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 0, 0]);
        assert!(watch.expect(), "nobody would look");
        assert!(!watch.expect(), "one is on its way");
        assert_eq!(millis(watch.see(false)), 5);
        assert!(!watch.expect(), "it comes back soon");
    }
}
