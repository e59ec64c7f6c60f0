//! Tasks that failed for good, and what operators did.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::time::Duration;

use windlass_core::{ActionId, Payload, RunId, RunState, TaskId, TaskIndex, Timestamp};

use super::run::Run;
use super::state::{Shared, State};
use crate::planted::PlantedBug;
use crate::store::dead::{batch_limit, filter_detail, not_discarded};
use crate::store::log::another_action;
use crate::store::{
    Action, DeadLetter, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Discarded,
    LogEntry, LogFilter, LogPage, NewLogEntry, PAGE_MAX, REDRIVE_TASKS_MAX, Redrive, Redriven,
    RefusedRun, StoreError,
};

/// All dead letters.
#[derive(Default)]
pub(super) struct DeadLetters {
    by_age: BTreeMap<DeadLetterCursor, DeadLetter>,
    ages: BTreeMap<TaskId, Timestamp>,
}

impl DeadLetters {
    fn insert(&mut self, letter: DeadLetter) {
        self.ages.insert(letter.task, letter.failed_at);
        self.by_age.insert(letter.cursor(), letter);
    }

    fn remove(&mut self, task: TaskId) {
        if let Some(failed_at) = self.ages.remove(&task) {
            self.by_age.remove(&DeadLetterCursor { failed_at, task });
        }
    }

    /// Forgets those of a run.
    pub(super) fn forget(&mut self, run: RunId) {
        let first = TaskId { run, index: TaskIndex(0) };
        let last = TaskId { run, index: TaskIndex(u32::MAX) };
        let tasks: Vec<TaskId> = self.ages.range(first..=last).map(|(task, _)| *task).collect();
        tasks.into_iter().for_each(|task| self.remove(task));
    }

    /// Whether a run has any.
    pub(super) fn has(&self, run: RunId) -> bool {
        let first = TaskId { run, index: TaskIndex(0) };
        self.ages.range(first..).next().is_some_and(|(task, _)| task.run == run)
    }

    pub(super) fn list(
        &self,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> DeadLetterPage {
        let limit = limit.min(PAGE_MAX);
        let before = after.map_or(Bound::Unbounded, Bound::Excluded);
        let newest_first = self.by_age.range((Bound::Unbounded, before)).rev();
        let mut matching =
            newest_first.map(|(_, letter)| letter).filter(|letter| filter.matches(letter));
        let letters: Vec<DeadLetter> = matching.by_ref().take(limit).cloned().collect();
        let has_more = matching.next().is_some();
        let next = letters.last().filter(|_| has_more).map(DeadLetter::cursor);
        DeadLetterPage { letters, next }
    }

    /// The first of a filter behind a place, the oldest first, and whether there are more.
    fn batch(
        &self,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> (Vec<DeadLetterCursor>, bool) {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let oldest_first = self.by_age.range((after, Bound::Unbounded));
        let mut matching = oldest_first.filter(|(_, letter)| filter.matches(letter));
        let batch = matching.by_ref().take(limit).map(|(cursor, _)| *cursor).collect();
        (batch, matching.next().is_some())
    }
}

/// What operators did, the oldest first.
#[derive(Default)]
pub(super) struct Log {
    entries: Vec<LogEntry>,
    places: HashMap<ActionId, usize>,
}

impl Log {
    fn push(&mut self, at: Timestamp, runs: Vec<RunId>, new: NewLogEntry) {
        let NewLogEntry { id, by, action, tenant, run: _, detail } = new;
        let number = self.entries.len() as u64 + 1;
        self.places.insert(id, self.entries.len());
        self.entries.push(LogEntry { number, id, at, by, action, tenant, runs, detail });
    }

    /// What was written down of an action that is asked for again.
    fn repeated(&self, id: ActionId, action: Action) -> Result<Option<&LogEntry>, StoreError> {
        match self.places.get(&id).and_then(|place| self.entries.get(*place)) {
            Some(entry) if entry.action != action => Err(another_action(id, entry.action, action)),
            entry => Ok(entry),
        }
    }

    pub(super) fn list(&self, filter: &LogFilter) -> LogPage {
        let LogFilter { run, action, by, tenant, before, limit } = filter;
        let limit = match *limit {
            0 => PAGE_MAX,
            limit => limit.min(PAGE_MAX),
        };
        let is_wanted = |entry: &&LogEntry| {
            before.is_none_or(|before| entry.number < before)
                && run.is_none_or(|run| entry.runs.contains(&run))
                && action.is_none_or(|action| entry.action == action)
                && by.as_ref().is_none_or(|by| entry.by.name == *by)
                && tenant.as_ref().is_none_or(|tenant| entry.tenant.as_ref() == Some(tenant))
        };
        let mut newest_first = self.entries.iter().rev().filter(is_wanted);
        let entries: Vec<LogEntry> = newest_first.by_ref().take(limit).cloned().collect();
        let has_more = newest_first.next().is_some();
        let next = entries.last().filter(|_| has_more).map(|entry| entry.number);
        LogPage { entries, next }
    }
}

impl State {
    pub(super) fn log(&mut self, entry: NewLogEntry) -> Result<(), StoreError> {
        if self.log.repeated(entry.id, entry.action)?.is_none() {
            let runs = entry.run.into_iter().collect();
            self.log.push(self.shared.now, runs, entry);
        }
        Ok(())
    }

    pub(super) fn redrive(&mut self, redrive: Redrive) -> Result<Redriven, StoreError> {
        let Redrive { id, by, filter, after, limit, pace } = redrive;
        let action = Action::Redrive;
        if let Some(entry) = self.log.repeated(id, action)? {
            return answered(entry);
        }
        let now = self.shared.now;
        let (batch, has_more) = self.shared.letters.batch(&filter, after, batch_limit(limit));
        let mut answer = Redriven::default();
        let (mut seen, mut tasks, mut last) = (BTreeSet::new(), 0, None);
        for cursor in &batch {
            let run = cursor.task.run;
            if !seen.contains(&run) {
                let more = self.runs.get(&run).map_or(0, |run| run.tasks.len());
                if last.is_some() && tasks + more > REDRIVE_TASKS_MAX {
                    break;
                }
                tasks += more;
                seen.insert(run);
                let delay = pace.map_or(Duration::ZERO, |pace| {
                    (pace.start(now) + pace.offset(answer.runs.len())).since(now)
                });
                match self.begin_round(run, delay) {
                    Ok(_) => answer.runs.push(run),
                    Err(error @ StoreError::Corrupt(_)) => return Err(error),
                    Err(error) => answer.refused.push(RefusedRun { run, why: error.to_string() }),
                }
            }
            last = Some(*cursor);
        }
        for run in &answer.runs {
            self.reopen_child(*run);
        }
        answer.next = last.filter(|last| has_more || batch.last() != Some(last));
        answer.due = pace.map(|pace| pace.start(now) + pace.offset(answer.runs.len()));
        let detail = serde_json::json!({
            "filter": filter_detail(&filter),
            "per_second": pace.map(|pace| pace.per_second.get()),
            "answer": &answer,
        });
        let new = NewLogEntry {
            id,
            by,
            action,
            tenant: filter.tenant,
            run: None,
            detail: Some(encoded(&detail)?),
        };
        self.log.push(now, answer.runs.clone(), new);
        Ok(answer)
    }

    pub(super) fn discard(&mut self, discard: Discard) -> Result<Discarded, StoreError> {
        let Discard { id, by, filter, after, limit } = discard;
        let action = Action::Discard;
        if let Some(entry) = self.log.repeated(id, action)? {
            return answered(entry);
        }
        let (batch, has_more) = self.shared.letters.batch(&filter, after, batch_limit(limit));
        let mut answer = Discarded::default();
        let mut seen = BTreeSet::new();
        for cursor in &batch {
            let run = cursor.task.run;
            let state = self.runs.get(&run).map_or(RunState::Failed, |run| run.state);
            let refused = not_discarded(run, state);
            let is_new = seen.insert(run);
            match refused {
                Some(why) if is_new => answer.refused.push(RefusedRun { run, why }),
                Some(_) => {}
                None => {
                    self.shared.letters.remove(cursor.task);
                    // One that halts its stream has slots.
                    if !self.shared.planted.has(PlantedBug::DiscardKeepsSlots) {
                        self.shared.vacated.push(cursor.task);
                    }
                    answer.letters += 1;
                    answer.runs.extend(is_new.then_some(run));
                }
            }
        }
        answer.next = batch.last().copied().filter(|_| has_more);
        let detail = serde_json::json!({ "filter": filter_detail(&filter), "answer": &answer });
        let new = NewLogEntry {
            id,
            by,
            action,
            tenant: filter.tenant,
            run: None,
            detail: Some(encoded(&detail)?),
        };
        self.log.push(self.shared.now, answer.runs.clone(), new);
        Ok(answer)
    }
}

fn encoded(detail: &serde_json::Value) -> Result<Payload, StoreError> {
    Payload::encode(detail).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// What an action answered when it was done.
fn answered<T: serde::de::DeserializeOwned>(entry: &LogEntry) -> Result<T, StoreError> {
    crate::store::log::answer_of(entry.id, entry.detail.as_ref().map(Payload::as_str))
}

impl Run {
    /// Notes that a task has failed for good.
    pub(super) fn bury(&mut self, shared: &mut Shared, index: TaskIndex) {
        let spec = self.definition.task(index);
        let task = &self.tasks[index.as_usize()];
        let Some(failure) = task.failure.clone() else { return };
        let needs = self.lane_keys.needs(&self.definition, &self.tenant, index);
        shared.letters.insert(DeadLetter {
            task: self.task_id(index),
            name: spec.name.clone(),
            round: self.round,
            tenant: self.tenant.clone(),
            workflow: self.definition.name().clone(),
            version: self.definition.version(),
            queue: spec.queue.clone(),
            failure,
            attempts: task.attempt,
            lanes: needs.into_iter().map(|need| need.lane).collect(),
            failed_at: shared.now,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_core::definition::TaskDraft;
    use windlass_core::{
        ClaimSeq, Decision, Definition, DefinitionDraft, Failure, FailureCode, Operator, Priority,
        QueueName, TaskKind, Tenant, WorkerId,
    };

    use super::*;
    use crate::store::{
        ClaimRequest, Completion, HandlerKey, Hello, MemoryStore, NewRun, Store as _, WorkerInfo,
        WorkerLink as _,
    };

    /// A workflow whose first task fails, and with it all others.
    fn wide(tasks: usize) -> Arc<Definition> {
        let first = TaskDraft::new("f", TaskKind::Handler);
        let other = |number| TaskDraft::new(format!("t{number}"), TaskKind::Handler).after("f");
        let all = (1..tasks).map(other);
        let draft = all.fold(DefinitionDraft::new("wide").task(first), DefinitionDraft::task);
        Arc::new(draft.build().unwrap())
    }

    fn start(number: u128, definition: &Definition) -> NewRun {
        NewRun {
            id: RunId::from_parts(Timestamp::from_micros(0), number),
            workflow: definition.name().clone(),
            version: definition.version(),
            tenant: Tenant::default(),
            input: Payload::default(),
            key: None,
            delay: Duration::ZERO,
            priority: Priority::default(),
            metadata: BTreeMap::new(),
        }
    }

    #[tokio::test]
    async fn a_redrive_takes_runs_with_as_many_tasks_as_it_may_have() {
        const RUNS: usize = 4;
        let store = MemoryStore::new();
        let definition = wide(REDRIVE_TASKS_MAX / RUNS);
        let runs = (0..=RUNS as u128).map(|number| start(number, &definition)).collect();
        let worker = WorkerId::from_random(1);
        let hello = Hello {
            worker,
            name: "w".to_owned(),
            slots: 10,
            lease: Duration::from_secs(60),
            definitions: vec![Arc::clone(&definition)],
            info: WorkerInfo::default(),
        };
        store.join(hello).await.unwrap();
        store.start_runs(runs).await.unwrap();
        let (workflow, version) = (definition.name().clone(), definition.version());
        let request = ClaimRequest {
            worker,
            seq: ClaimSeq(1),
            queues: [QueueName::default()].into(),
            handlers: [HandlerKey { workflow, version }].into(),
            limit: 10,
            ending: 0,
            is_poll: false,
            tenant: None,
        };
        let claimed = store.claim(request).await.unwrap();
        let fail = Decision::Fail(Failure::new(FailureCode::Error, "no"));
        let finished = claimed.iter().map(|it| Completion {
            task: it.task,
            fence: it.fence,
            decision: fail.clone(),
        });
        store.finish(finished.collect()).await.unwrap();
        let mut redrive = Redrive {
            id: ActionId::from_random(1),
            by: Operator::new("anna").unwrap().into(),
            filter: DeadLetterFilter::default(),
            after: None,
            limit: 0,
            pace: None,
        };
        let answer = store.redrive(redrive.clone()).await.unwrap();
        assert_eq!(answer.runs.len(), RUNS);
        (redrive.id, redrive.after) = (ActionId::from_random(2), answer.next);
        assert_eq!(store.redrive(redrive).await.unwrap().runs.len(), 1);
    }
}
