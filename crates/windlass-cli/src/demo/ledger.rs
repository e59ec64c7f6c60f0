//! What the store answered: the only source of every figure the demo shows.

use std::collections::{BTreeMap, BTreeSet};

use windlass::store::{RunFilter, RunRecord, TaskRecord};
use windlass::{Error, Event, RunHandle, TaskState, Tenant, Windlass};
use windlass::{EventBody, EventId, RunEventKind, TaskEvent, TaskEventKind, WorkerId};

/// A run as it was read last.
pub(super) struct Page {
    pub(super) handle: RunHandle,
    pub(super) record: RunRecord,
    pub(super) tasks: Vec<TaskRecord>,
    /// The whole history so far, the oldest first.
    pub(super) events: Vec<Event>,
    /// Those that were taken.
    taken: BTreeSet<EventId>,
}

impl Page {
    fn new(handle: RunHandle, record: RunRecord) -> Self {
        Page { handle, record, tasks: Vec::new(), events: Vec::new(), taken: BTreeSet::new() }
    }

    /// What people call the run: its key.
    pub(super) fn label(&self) -> &str {
        self.record.key.as_ref().map_or("?", |key| key.as_str())
    }

    /// Whether the run has ended and everything about it was read.
    pub(super) fn is_closed(&self) -> bool {
        let is_ended = |event: &Event| match &event.body {
            EventBody::Run(run) => run.to.is_final(),
            EventBody::Task(_) => false,
        };
        self.record.state.is_final() && self.events.last().is_some_and(is_ended)
    }

    /// The events of its tasks.
    pub(super) fn task_events(&self) -> impl Iterator<Item = &TaskEvent> {
        self.events.iter().filter_map(Event::task)
    }

    /// How many of its tasks have ended.
    pub(super) fn ended_tasks(&self) -> usize {
        self.tasks.iter().filter(|task| task.state.is_final()).count()
    }

    /// The task with this name.
    pub(super) fn task(&self, name: &str) -> Option<&TaskRecord> {
        self.tasks.iter().find(|task| task.name.as_str() == name)
    }

    /// Reads what is new. A run that ended is read again only if it went on meanwhile.
    ///
    /// The history is read from its beginning: what was committed late may have a number
    /// below those that were seen. Once the run has ended, nothing is missing.
    async fn refresh(&mut self, record: RunRecord) -> Result<(), Error> {
        if self.is_closed() && record.round == self.record.round {
            return Ok(());
        }
        // The record was read first: if it says that the run ended, the history read after
        // it is whole. Every event of a run that goes on changes one of its tasks.
        let tasks = self.handle.tasks().await?;
        let is_as_before = !record.state.is_final()
            && record.round == self.record.round
            && tasks == self.tasks
            && !self.events.is_empty();
        if !is_as_before {
            self.events = self.handle.history().await?;
        }
        (self.record, self.tasks) = (record, tasks);
        Ok(())
    }
}

/// All runs of the demo, the oldest first.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) pages: Vec<Page>,
}

impl Ledger {
    /// Reads what is new about all runs.
    pub(super) async fn refresh(&mut self, windlass: &Windlass) -> Result<(), Error> {
        // One page holds them all: there are fewer than `PAGE_MAX`.
        let mut records = windlass.list(RunFilter::default()).await?.runs;
        records.reverse();
        for record in records {
            let known = self.pages.iter().position(|page| page.record.id == record.id);
            let place = known.unwrap_or(self.pages.len());
            if known.is_none() {
                self.pages.push(Page::new(windlass.run(record.id), record.clone()));
            }
            self.pages[place].refresh(record).await?;
        }
        Ok(())
    }

    /// The events that were read and not taken yet, with the place of their run in
    /// `pages`, in the order of the store.
    pub(super) fn take_new(&mut self) -> Vec<(usize, Event)> {
        let mut new = Vec::new();
        for (place, page) in self.pages.iter_mut().enumerate() {
            let is_new = |event: &&Event| page.taken.insert(event.id);
            new.extend(page.events.iter().filter(is_new).map(|event| (place, event.clone())));
        }
        new.sort_by_key(|(_, event)| event.id);
        new
    }

    /// How many runs a tenant has.
    pub(super) fn runs_of(&self, tenant: &str) -> usize {
        self.pages.iter().filter(|page| page.record.tenant.as_str() == tenant).count()
    }

    /// The run of a tenant with a key.
    pub(super) fn find(&self, tenant: &str, key: &str) -> Option<&Page> {
        let is_it = |page: &&Page| page.record.tenant.as_str() == tenant && page.label() == key;
        self.pages.iter().find(is_it)
    }

    /// Whether every run has ended and was read to its end.
    pub(super) fn is_closed(&self) -> bool {
        self.pages.iter().all(Page::is_closed)
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for page in &self.pages {
            tally.tasks += page.tasks.len();
            tally.ended_tasks += page.ended_tasks();
            tally.events += page.events.len();
            page.events.iter().for_each(|event| tally.count(event, &page.record.tenant));
        }
        tally
    }

    /// How long a tenant that came late had to wait for its first claim.
    pub(super) fn newcomer(&self, tenant: &str) -> Option<Newcomer> {
        let mut events: Vec<(EventId, bool, &TaskEvent)> = Vec::new();
        for page in &self.pages {
            let is_newcomer = page.record.tenant.as_str() == tenant;
            let of_tasks = page.events.iter().filter_map(|event| Some((event.id, event.task()?)));
            events.extend(of_tasks.map(|(id, event)| (id, is_newcomer, event)));
        }
        events.sort_by_key(|(id, _, _)| *id);
        let first = |to| {
            let is_first =
                |(_, is_newcomer, event): &&(_, bool, &TaskEvent)| *is_newcomer && event.to == to;
            events.iter().find(is_first).map(|(id, _, _)| *id)
        };
        let (ready_at, claimed_at) = (first(TaskState::Ready)?, first(TaskState::Running)?);
        let mut backlog = 0_usize;
        let mut others_claims = 0;
        for (id, is_newcomer, event) in &events {
            if *is_newcomer || *id > claimed_at {
                continue;
            }
            if *id < ready_at {
                backlog += usize::from(event.to == TaskState::Ready);
                backlog -= usize::from(event.from == TaskState::Ready);
            } else {
                others_claims += usize::from(event.to == TaskState::Running);
            }
        }
        Some(Newcomer { backlog, others_claims })
    }
}

/// A tenant's first claim, seen from the others.
pub(super) struct Newcomer {
    /// How many tasks of others were ready when its first task became ready.
    pub(super) backlog: usize,
    /// How many of them were claimed before it.
    pub(super) others_claims: usize,
}

/// What all histories add up to.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) tasks: usize,
    pub(super) ended_tasks: usize,
    pub(super) events: usize,
    /// Claims: attempts that began.
    pub(super) attempts: usize,
    /// Attempts that ended, in whatever way.
    pub(super) attempt_ends: usize,
    pub(super) retries: usize,
    /// Moves of a task into a state that is for ever, or until its run is retried.
    pub(super) final_events: usize,
    /// Moves of a task out of such a state.
    pub(super) resets: usize,
    pub(super) leases_lost: usize,
    pub(super) run_retries: usize,
    pub(super) claims_by_tenant: BTreeMap<Tenant, usize>,
    pub(super) workers: BTreeSet<WorkerId>,
}

impl Tally {
    fn count(&mut self, event: &Event, tenant: &Tenant) {
        let task = match &event.body {
            EventBody::Task(task) => task,
            EventBody::Run(run) => {
                self.run_retries += usize::from(matches!(run.kind, RunEventKind::Retried { .. }));
                return;
            }
        };
        self.final_events += usize::from(task.to.is_final());
        self.attempt_ends += usize::from(task.from == TaskState::Running);
        match &task.kind {
            TaskEventKind::Started { worker } => {
                self.attempts += 1;
                self.workers.insert(*worker);
                *self.claims_by_tenant.entry(tenant.clone()).or_default() += 1;
            }
            TaskEventKind::Retrying { .. } => self.retries += 1,
            TaskEventKind::LeaseExpired { .. } => self.leases_lost += 1,
            TaskEventKind::Reset => self.resets += 1,
            TaskEventKind::Queued
            | TaskEventKind::Delayed { .. }
            | TaskEventKind::Blocked { .. }
            | TaskEventKind::Sleeping { .. }
            | TaskEventKind::Woken
            | TaskEventKind::Succeeded
            | TaskEventKind::Failed { .. }
            | TaskEventKind::Released { .. }
            | TaskEventKind::Parked { .. }
            | TaskEventKind::Resumed
            | TaskEventKind::Continued
            | TaskEventKind::Skipped
            | TaskEventKind::Cancelled => {}
        }
    }
}
