//! Runs that durable functions start and wait for.
//!
//! A run that ends may have a parent whose lock would come out of order, so it leaves a note
//! in its transaction, and the next sweep of what is due delivers it: to the parent that waits,
//! or to the children of a run that was cancelled. A parent that is about to wait looks itself,
//! under its own lock, so that no end is missed.

use std::collections::{BTreeSet, HashMap};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{Call, Failure, Fence, Payload, RunId, RunState, StepResult, TaskId};

use super::PostgresStore;
use super::deadlines::busy_runs;
use super::fault::Fault;
use super::pool::{Params, Tx};
use super::statements as sql;
use super::work::{Work, pairs, run_state, sorted_ids, task_id};
use super::writes::{Writes, params};
use crate::store::{
    Born, Child, ChildCount, ChildStart, Held, NewRun, PAGE_MAX, Refusal, StoreError,
};

impl PostgresStore {
    pub(super) async fn start_children_once(
        &self,
        starts: &[ChildStart],
    ) -> Result<Vec<Born>, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let held: BTreeSet<Held> = starts.iter().map(|start| start.held).collect();
        let (runs, indices) = pairs(held.iter().map(|held| &held.task));
        let fences: Vec<i64> = held.iter().map(|held| held.fence.0.cast_signed()).collect();
        let rows = tx.query(&sql::HOLD_LEASES, &[&runs, &indices, &fences]).await?;
        let kept = |row: &Row| {
            let fence = Fence(row.get::<_, i64>("fence").cast_unsigned());
            Held { task: task_id(row), fence }
        };
        let kept: BTreeSet<Held> = rows.iter().map(kept).collect();
        let is_kept = |start: &&ChildStart| kept.contains(&start.held);
        let mine: Vec<&ChildStart> = starts.iter().filter(is_kept).collect();
        let new: Vec<NewRun> = mine.iter().map(|start| start.run.clone()).collect();
        let started = self.start_in(tx, &new, |answers| note_parents(&mine, answers)).await?;
        drop(connection);
        let mut started = started.into_iter();
        let mut answers = Vec::with_capacity(starts.len());
        for start in starts {
            answers.push(match kept.contains(&start.held) {
                false => Born::Refused(self.refusal(start.held).await?),
                true => match started.next() {
                    Some(Ok(started)) => Born::Started(started),
                    Some(Err(error)) => Born::Failed(error),
                    None => Born::Refused(Refusal::LeaseLost),
                },
            });
        }
        Ok(answers)
    }

    pub(super) async fn count_children_once(
        &self,
        task: TaskId,
        call: Call,
    ) -> Result<ChildCount, Fault> {
        let params: Params<'_> =
            &[task.run.as_uuid(), &task.index.0.cast_signed(), &call.0.cast_signed()];
        let rows = self.read(&sql::COUNT_CHILDREN, params).await?;
        let count = |column| {
            let count: i64 = rows.first().map_or(0, |row| row.get(column));
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Ok(ChildCount { started: count("started"), open: count("open") })
    }

    pub(super) async fn list_children_once(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, Fault> {
        let after = after.map_or(-1, |place| i32::try_from(place).unwrap_or(i32::MAX));
        let most = i64::try_from(limit.min(PAGE_MAX)).unwrap_or(i64::MAX);
        let params: Params<'_> = &[
            task.run.as_uuid(),
            &task.index.0.cast_signed(),
            &call.0.cast_signed(),
            &after,
            &most,
        ];
        let rows = self.read(&sql::LIST_CHILDREN, params).await?;
        rows.iter().map(|row| Ok(child_of(row)?)).collect()
    }

    /// Delivers notes: lets functions go on whose children have ended or who were told of a signal,
    /// and cancels the children of runs that were cancelled. Answers the numbers of the notes that were delivered; the
    /// runs that they concern and that nobody else has locked are those of `work`.
    pub(super) async fn deliver(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        notes: &[(i64, Note)],
        superseded: &BTreeSet<RunId>,
    ) -> Result<Vec<i64>, Fault> {
        let mut delivered = Vec::new();
        let mut told = BTreeSet::new();
        let (mut ended, mut parents) = (Vec::new(), BTreeSet::new());
        let children = notes.iter().flat_map(|(_, note)| match note {
            Note::Cancelled { children, .. } => children.as_slice(),
            Note::ChildEnded { .. }
            | Note::Signalled { .. }
            | Note::Superseded { .. }
            | Note::Lane { .. } => &[],
        });
        let busy = busy_runs(tx, work, children.copied()).await?;
        for (seq, note) in notes {
            match note {
                Note::ChildEnded { run, child } if work.runs.contains_key(run) => {
                    ended.push(*child.as_uuid());
                    parents.insert(*run);
                    delivered.push(*seq);
                }
                Note::Signalled { run } if work.runs.contains_key(run) => {
                    told.insert(*run);
                    delivered.push(*seq);
                }
                Note::Superseded { run } => {
                    if superseded.contains(run) {
                        delivered.push(*seq);
                    }
                }
                Note::ChildEnded { .. } | Note::Signalled { .. } => {}
                Note::Lane { run } => {
                    if work.runs.contains_key(run) {
                        self.visit_lanes(work, [*run]);
                        delivered.push(*seq);
                    }
                }
                Note::Cancelled { children, is_all, .. } => {
                    let is_free =
                        |child: &RunId| work.runs.contains_key(child) && !busy.contains(child);
                    if *is_all && children.iter().all(is_free) {
                        delivered.push(*seq);
                    }
                    let children: Vec<RunId> =
                        children.iter().copied().filter(|child| is_free(child)).collect();
                    self.cancel_children(tx, work, note, &children).await?;
                }
            }
        }
        self.resume_parents(tx, work, &ended, &parents).await?;
        self.resume_told(tx, work, &told).await?;
        Ok(delivered)
    }

    /// Notes which children have ended, and lets functions of their parents go on that wait for
    /// no more.
    async fn resume_parents(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        ended: &[Uuid],
        parents: &BTreeSet<RunId>,
    ) -> Result<(), Fault> {
        if ended.is_empty() {
            return Ok(());
        }
        let parents: Vec<Uuid> = parents.iter().map(|run| *run.as_uuid()).collect();
        let end: Params<'_> = &[&ended];
        let wait: Params<'_> = &[&parents];
        let all = [(&sql::END_CHILDREN, end), (&sql::CHILD_WAITERS, wait)];
        let [_, waiters] = tx.query_all(all).await?;
        let waiters: Vec<TaskId> = waiters.iter().map(task_id).collect();
        self.resume_waiting(tx, work, waiters).await
    }

    async fn cancel_children(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        note: &Note,
        children: &[RunId],
    ) -> Result<(), Fault> {
        let parent = note.run();
        for child in children {
            let is_open = work.runs.get(child).is_some_and(|run| run.state == RunState::Running);
            if is_open {
                let reason = format!("its parent run {parent} was cancelled");
                self.cancel_in(tx, work, *child, Some(&reason)).await?;
            }
        }
        Ok(())
    }

    /// The children of runs that were cancelled which are to be cancelled as well.
    pub(super) async fn children_to_cancel(
        &self,
        tx: &Tx<'_>,
        notes: &mut [(i64, Note)],
        limit: usize,
    ) -> Result<(), Fault> {
        let is_cancel = |(_, note): &&(i64, Note)| matches!(note, Note::Cancelled { .. });
        let parents: BTreeSet<Uuid> =
            notes.iter().filter(is_cancel).map(|(_, note)| *note.run().as_uuid()).collect();
        if parents.is_empty() {
            return Ok(());
        }
        let parents: Vec<Uuid> = parents.into_iter().collect();
        let most = i64::try_from(limit.max(1)).unwrap_or(i64::MAX);
        let rows = tx.query(&sql::OPEN_CHILDREN, &[&parents, &most]).await?;
        let is_whole = rows.len() < limit.max(1);
        let mut found: HashMap<RunId, Vec<RunId>> = HashMap::new();
        for row in &rows {
            let child = RunId::from_uuid(row.get("child_id"));
            found.entry(RunId::from_uuid(row.get("run_id"))).or_default().push(child);
        }
        for (_, note) in notes {
            if let Note::Cancelled { run, children, is_all } = note {
                *children = found.remove(run).unwrap_or_default();
                *is_all = is_whole;
            }
        }
        Ok(())
    }
}

/// Something that happened to a run and that others must hear of.
#[derive(Clone, Debug)]
pub(super) enum Note {
    /// A child of this run ended, or was retried.
    ChildEnded { run: RunId, child: RunId },
    /// A task of this run may have slots in lanes by now.
    Lane { run: RunId },
    /// This run was cancelled, and so are its children.
    Cancelled { run: RunId, children: Vec<RunId>, is_all: bool },
    /// A signal came for functions of this run that wait for a key.
    Signalled { run: RunId },
    /// Others have the place of this run in a lane, and it is to be cancelled.
    Superseded { run: RunId },
}

impl Note {
    /// What a staged row says, if it is not a run that waits for its admission.
    pub(super) fn of(row: &Row) -> Option<Note> {
        let run = RunId::from_uuid(row.get("run_id"));
        let child = row.get::<_, Option<Uuid>>("child_id").map(RunId::from_uuid);
        match (row.get::<_, Option<&str>>("purpose")?, child) {
            ("child_ended", Some(child)) => Some(Note::ChildEnded { run, child }),
            ("lane", _) => Some(Note::Lane { run }),
            ("signalled", _) => Some(Note::Signalled { run }),
            ("superseded", _) => Some(Note::Superseded { run }),
            _ => Some(Note::Cancelled { run, children: Vec::new(), is_all: true }),
        }
    }

    fn run(&self) -> RunId {
        match self {
            Note::ChildEnded { run, .. }
            | Note::Lane { run }
            | Note::Cancelled { run, .. }
            | Note::Superseded { run }
            | Note::Signalled { run } => *run,
        }
    }

    /// The runs that must be locked to deliver it.
    pub(super) fn runs(&self) -> Vec<RunId> {
        match self {
            Note::ChildEnded { run, .. }
            | Note::Lane { run }
            | Note::Superseded { run }
            | Note::Signalled { run } => vec![*run],
            Note::Cancelled { children, .. } => children.clone(),
        }
    }
}

/// The numbers of notes for runs that are not there any more: a run may go while somebody who does
/// not lock it leaves one.
pub(super) async fn notes_of_the_gone(
    tx: &Tx<'_>,
    work: &Work,
    notes: &[(i64, Note)],
) -> Result<Vec<i64>, Fault> {
    // The children of a run that was cancelled stay for as long as it knows them.
    let concerned = |note: &Note| match note {
        Note::ChildEnded { run, .. }
        | Note::Lane { run }
        | Note::Superseded { run }
        | Note::Signalled { run } => Some(*run).filter(|run| !work.runs.contains_key(run)),
        Note::Cancelled { .. } => None,
    };
    let unlocked = sorted_ids(notes.iter().filter_map(|(_, note)| concerned(note)));
    if unlocked.is_empty() {
        return Ok(Vec::new());
    }
    let rows = tx.query(&sql::PRESENT_RUNS, &[&unlocked]).await?;
    let present: BTreeSet<RunId> = rows.iter().map(|row| RunId::from_uuid(row.get(0))).collect();
    let is_gone =
        |(_, note): &&(i64, Note)| concerned(note).is_some_and(|run| !present.contains(&run));
    Ok(notes.iter().filter(is_gone).map(|(seq, _)| *seq).collect())
}

/// How many children of calls are open, under the locks of their parents.
pub(super) async fn count_open(
    tx: &Tx<'_>,
    tasks: &BTreeSet<TaskId>,
) -> Result<HashMap<(TaskId, Call), u32>, Fault> {
    let (runs, indices) = pairs(tasks);
    let params: Params<'_> = &[&runs, &indices];
    let [_, rows] = tx.query_all([(&sql::SEE_ENDS, params), (&sql::COUNT_OPEN, params)]).await?;
    let count = |row: &Row| {
        let call = Call(row.get::<_, i32>("call").cast_unsigned());
        let open = u32::try_from(row.get::<_, i64>("open")).unwrap_or(u32::MAX);
        ((task_id(row), call), open)
    };
    Ok(rows.iter().map(count).collect())
}

/// Notes who started the runs of a batch that are there.
fn note_parents(
    starts: &[&ChildStart],
    answers: &[Result<crate::store::Started, StoreError>],
) -> Writes<'static> {
    let mut writes = Writes::default();
    let (mut children, mut tasks) = (Vec::<Uuid>::new(), Vec::<TaskId>::new());
    let (mut calls, mut places) = (Vec::<i32>::new(), Vec::<i32>::new());
    for (start, answer) in starts.iter().zip(answers) {
        if let (Ok(started), Some(place)) = (answer, start.place) {
            children.push(*started.run.as_uuid());
            tasks.push(start.held.task);
            calls.push(start.call.0.cast_signed());
            places.push(place.cast_signed());
        }
    }
    if !children.is_empty() {
        let (runs, indices) = pairs(&tasks);
        writes.push(&sql::INSERT_CHILDREN, params![children, runs, indices, calls, places]);
    }
    writes
}

fn child_of(row: &Row) -> Result<Child, StoreError> {
    let run = RunId::from_uuid(row.get("child_id"));
    let wrong = |error: String| StoreError::Corrupt(format!("child {run}: {error}"));
    let state = run_state(row.get("state")).map_err(wrong)?;
    let result = match state {
        RunState::Running => None,
        RunState::Succeeded => {
            let output = row.get::<_, Option<&str>>("output").unwrap_or("null");
            let output = Payload::from_json(output).map_err(|error| wrong(error.to_string()))?;
            Some(StepResult::Value(output))
        }
        RunState::Failed | RunState::Cancelled => {
            let failure = row.get::<_, Option<&str>>("failure");
            let failure = failure.map(serde_json::from_str::<Failure>).transpose();
            let failure = failure.map_err(|error| wrong(error.to_string()))?;
            Some(Child::failed(run, state, failure))
        }
    };
    let place = row.get::<_, i32>("place").cast_unsigned();
    Ok(Child { place, run, state, result })
}

impl Work {
    /// Leaves notes of runs that ended, for those who may wait for them.
    pub(super) fn write_notes(&self, writes: &mut Writes<'_>) {
        let ended = self.runs.values().filter(|run| run.is_changed && run.state.is_final());
        let (mut children, mut cancelled) = (Vec::<Uuid>::new(), Vec::<Uuid>::new());
        for run in ended {
            if run.id.may_be_child() {
                children.push(*run.id.as_uuid());
            }
            if run.state == RunState::Cancelled {
                cancelled.push(*run.id.as_uuid());
            }
        }
        if !children.is_empty() {
            writes.push(&sql::NOTE_ENDS, params![children]);
        }
        if !cancelled.is_empty() {
            writes.push(&sql::NOTE_CANCEL, params![cancelled]);
        }
    }

    /// Whether notes were left.
    pub(super) fn has_notes(&self) -> bool {
        self.runs.values().any(|run| {
            let is_noted = run.id.may_be_child() || run.state == RunState::Cancelled;
            run.is_changed && run.state.is_final() && is_noted
        })
    }
}
