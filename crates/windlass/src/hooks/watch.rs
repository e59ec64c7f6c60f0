//! What there is to tell: a look at dead letters, queues and workers.
//!
//! A look starts a run for each notification, under a key that says what it is about. So it may be
//! done again, here or by another process, and nobody is told twice; what is remembered in between
//! only spares starts. A look that fails remembers nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_core::{QueueName, RunId, RunState, Timestamp};

use super::delivery::TENANT;
use super::notice::{Backlog, Notice, TASKS_TOLD_MAX};
use super::{Checked, QUEUE, Trouble, WORKFLOW};
use crate::engine::Windlass;
use crate::error::{Error, ErrorKind};
use crate::store::{
    DeadLetter, DeadLetterFilter, PAGE_MAX, QueueList, RunRecord, Store, StoreError, WorkerFilter,
    WorkerState,
};
use crate::workflow::Workflow;

/// How far back a process looks at least that has not looked before.
const FIRST_LOOK: Duration = Duration::from_secs(10 * 60);

/// How far back a process looks at most: further than that, what is found is history.
const LOOK_BACK_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How far behind the previous look the next one begins: a transaction may be committed so long
/// after it has read the time.
const OVERLAP: Duration = Duration::from_secs(60);

/// How often a condition that lasts is told again.
const AGAIN: Duration = Duration::from_secs(60 * 60);

/// How old the counts of the queues may be: six times as old as they become.
const COUNTS_AGE_MAX: Duration = Duration::from_secs(60);

/// The most dead letters that a look takes in, the newest. More within five seconds are no news.
const LETTERS_MAX: usize = 10_000;

/// The most runs with a dead letter and without an end that are remembered, the newest.
const OPEN_MAX: usize = 10_000;

/// The most of them that a look asks about.
const ASKED_MAX: usize = 200;

/// The most pages of living workers that a look takes in.
const WORKER_PAGES_MAX: usize = 10;

/// What a look leaves to the next one in the same process.
#[derive(Clone, Default)]
struct Memory {
    /// When the last look began.
    looked_at: Option<Timestamp>,
    /// What was started, and until when it would be found again.
    told: BTreeMap<String, Timestamp>,
    /// Rounds of runs with a dead letter that have not ended, and since when an end is news.
    open: BTreeMap<(RunId, u32), Timestamp>,
    /// The one that was asked about last.
    asked: Option<(RunId, u32)>,
}

/// The times of a look.
struct Times {
    now: Timestamp,
    /// Since when dead letters are read.
    since: Timestamp,
    /// Since when what happened is news.
    news: Timestamp,
}

/// Something to tell, under a key that says what it is.
struct Told {
    key: String,
    notice: Notice,
    /// Until when it would be found again.
    until: Timestamp,
}

pub(super) struct Watch {
    hooks: Arc<[Checked]>,
    workflow: Workflow<Notice>,
    /// The name of the duty whose handler this is.
    duty: String,
    memory: Mutex<Memory>,
}

impl Watch {
    pub(super) fn new(hooks: Arc<[Checked]>, workflow: Workflow<Notice>, duty: &str) -> Self {
        Watch { hooks, workflow, duty: duty.to_owned(), memory: Mutex::default() }
    }

    /// Starts a run for everything that there is to tell and that was not told before.
    pub(super) async fn look(&self, windlass: &Windlass) -> Result<(), Error> {
        let store = &**windlass.store();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut told = Vec::new();
        let now = store.now().await?;
        let is_told = |word: &str| self.wanted().any(|(_, trouble)| trouble.word() == word);
        if is_told(Trouble::RunFailed.word()) || is_told(Trouble::DeadLetter.word()) {
            let times = self.times(store, &memory, now).await?;
            let letters = letters(store, times.since).await?;
            let opened = self.tell_letters(&letters, &times, &mut memory, &mut told);
            self.tell_runs(store, (&times, opened), &mut memory, &mut told).await?;
        }
        memory.looked_at = Some(now);
        let stale = self.tell_queues(store, &mut told).await?;
        told.retain(|told| !memory.told.contains_key(&told.key));
        self.start(windlass, &told).await?;
        memory.told.extend(told.into_iter().map(|told| (told.key, told.until)));
        memory.told.retain(|_, until| *until >= now);
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
        stale.map_or(Ok(()), Err)
    }

    /// Who is to be told of what.
    fn wanted(&self) -> impl Iterator<Item = (&str, Trouble)> {
        self.hooks.iter().flat_map(|hook| hook.troubles.iter().map(|it| (&*hook.name, *it)))
    }

    async fn times(
        &self,
        store: &dyn Store,
        memory: &Memory,
        now: Timestamp,
    ) -> Result<Times, Error> {
        let oldest = before(now, LOOK_BACK_MAX);
        if let Some(looked_at) = memory.looked_at {
            let since = before(looked_at, OVERLAP).max(oldest);
            return Ok(Times { now, since, news: since });
        }
        let duties = store.list_duties().await?;
        let duty = duties.into_iter().find(|duty| duty.name.as_str() == self.duty);
        let last = duty.and_then(|duty| duty.last_run).map(|(at, _)| before(at, OVERLAP));
        let first = before(now, FIRST_LOOK);
        let news = last.map_or(first, |last| last.min(first)).max(oldest);
        // Runs may end long after the dead letters that an earlier process has seen.
        Ok(Times { now, since: oldest, news })
    }

    /// Tells of dead letters; answers the rounds of runs that have news among them for the first
    /// time.
    fn tell_letters(
        &self,
        letters: &[DeadLetter],
        times: &Times,
        memory: &mut Memory,
        told: &mut Vec<Told>,
    ) -> BTreeSet<(RunId, u32)> {
        let mut opened = BTreeSet::new();
        for letter in letters {
            let (run, round, index) = (letter.task.run, letter.round, letter.task.index.as_usize());
            let until = letter.failed_at + OVERLAP;
            for (hook, trouble) in self.wanted() {
                if trouble == Trouble::DeadLetter && letter.failed_at >= times.news {
                    let key = format!("{hook}/{trouble}/{run}/{round}/{index}");
                    told.push(Told { key, notice: Notice::of_letter(hook, letter), until });
                }
            }
            let seen = format!("seen/{run}/{round}");
            if memory.told.insert(seen, until.max(times.now)).is_none() {
                memory.open.entry((run, round)).or_insert(times.news);
                opened.extend((letter.failed_at >= times.news).then_some((run, round)));
            }
        }
        while memory.open.len() > OPEN_MAX {
            if let Some(((run, _), _)) = memory.open.pop_first() {
                tracing::warn!(%run, "too many runs have dead letters: its end will not be told");
            }
        }
        opened
    }

    /// Asks about runs that had not ended, some in each look and those with news first, and tells
    /// of those that have failed.
    async fn tell_runs(
        &self,
        store: &dyn Store,
        (times, opened): (&Times, BTreeSet<(RunId, u32)>),
        memory: &mut Memory,
        told: &mut Vec<Told>,
    ) -> Result<(), Error> {
        let hooks: Vec<&str> = self
            .wanted()
            .filter_map(|(hook, trouble)| (trouble == Trouble::RunFailed).then_some(hook))
            .collect();
        if hooks.is_empty() {
            memory.open.clear();
            return Ok(());
        }
        let (later, sooner): (Vec<_>, Vec<_>) =
            memory.open.keys().copied().partition(|round| Some(*round) > memory.asked);
        let others = later.into_iter().chain(sooner).filter(|round| !opened.contains(round));
        let asked: Vec<_> = opened.iter().copied().chain(others).take(ASKED_MAX).collect();
        for (run, round) in asked {
            if !opened.contains(&(run, round)) {
                memory.asked = Some((run, round));
            }
            let record = match store.get_run(run).await {
                // One that cannot be read here is not to keep those back that can.
                Err(StoreError::Unreadable(error)) => {
                    tracing::error!(%run, %error, "hooks are not told how a run ended");
                    memory.open.remove(&(run, round));
                    continue;
                }
                record => record?.filter(|record| record.round == round),
            };
            let state = record.as_ref().map(|record| record.state);
            if state == Some(RunState::Running) {
                continue;
            }
            let news = memory.open.remove(&(run, round));
            let is_news = |record: &RunRecord| record.ended_at >= news;
            let failed = record.filter(|_| state == Some(RunState::Failed)).filter(is_news);
            let Some(record) = failed else { continue };
            let filter = DeadLetterFilter::of_run(run);
            let letters = store.list_dead_letters(filter, None, TASKS_TOLD_MAX).await?.letters;
            for hook in &hooks {
                let key = format!("{hook}/{}/{run}/{round}", Trouble::RunFailed);
                let notice = Notice::of_run(hook, &record, &letters);
                told.push(Told { key, notice, until: times.now });
            }
        }
        Ok(())
    }

    /// Tells of queues; answers why what is known of them is not worth telling, if so.
    async fn tell_queues(
        &self,
        store: &dyn Store,
        told: &mut Vec<Told>,
    ) -> Result<Option<Error>, Error> {
        let wanted: Vec<_> =
            self.wanted().filter(|(_, trouble)| trouble.threshold().is_some()).collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let list = store.list_queues().await?;
        let at = list.at;
        if let Some(counted_at) = list.counted_at
            && at.since(counted_at) > COUNTS_AGE_MAX
        {
            let text = format!("queues were last counted at {counted_at}: nobody does that duty");
            return Ok(Some(Error::new(ErrorKind::Unavailable, text)));
        }
        let backlogs = backlogs(list);
        let mut serving = Serving::default();
        for (hook, trouble) in wanted {
            for backlog in &backlogs {
                let waits = at.since(backlog.oldest_at);
                let is_so = match trouble {
                    Trouble::RunFailed | Trouble::DeadLetter => false,
                    Trouble::QueueLag(threshold) => waits > threshold,
                    Trouble::NoWorker(after) if waits > after => {
                        let until = serving.until(store, &backlog.queue, at).await?;
                        until.is_none_or(|until| at.since(until) > after)
                    }
                    Trouble::NoWorker(_) => false,
                };
                if is_so {
                    let threshold = trouble.threshold().unwrap_or_default().as_micros();
                    let (hour, queue) = (hour_of(at), &backlog.queue);
                    let key = format!("{hook}/{trouble}/{threshold}/{hour}/{queue}");
                    let notice = Notice::of_queue(hook, trouble, at, backlog);
                    told.push(Told { key, notice, until: at + AGAIN });
                }
            }
        }
        Ok(None)
    }

    async fn start(&self, windlass: &Windlass, told: &[Told]) -> Result<(), Error> {
        if told.is_empty() {
            return Ok(());
        }
        windlass.register(self.workflow.definition()).await?;
        let start = |told: &Told| {
            let start = windlass.start(&self.workflow, told.notice.clone());
            start.tenant(TENANT).key(told.key.clone())
        };
        for answer in windlass.start_all(told.iter().map(start)).await? {
            match answer {
                Ok(_) => {}
                // Another process has told it, with the numbers of another moment.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The dead letters since a time, the oldest first, without those of notifications: one that cannot
/// be delivered is no news for hooks.
async fn letters(store: &dyn Store, since: Timestamp) -> Result<Vec<DeadLetter>, Error> {
    let filter = DeadLetterFilter { since: Some(since), ..DeadLetterFilter::default() };
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = store.list_dead_letters(filter.clone(), after, PAGE_MAX).await?;
        found.extend(page.letters);
        after = page.next;
        if after.is_none() {
            break;
        }
        if found.len() >= LETTERS_MAX {
            let count = found.len();
            tracing::warn!(count, "too many dead letters at once: hooks are told of the newest");
            break;
        }
    }
    found.retain(|letter| !letter.workflow.as_str().starts_with(WORKFLOW));
    found.reverse();
    Ok(found)
}

/// What waits in the queues, but for the notifications themselves.
fn backlogs(list: QueueList) -> Vec<Backlog> {
    let mut backlogs: BTreeMap<QueueName, Backlog> = BTreeMap::new();
    for record in list.queues {
        let ready = record.ready();
        let Some(oldest_at) = record.oldest_at.filter(|_| record.queue.as_str() != QUEUE) else {
            continue;
        };
        let queue = record.queue;
        let new = Backlog { queue: queue.clone(), ready: 0, oldest_at };
        let backlog = backlogs.entry(queue).or_insert(new);
        backlog.ready += ready;
        backlog.oldest_at = backlog.oldest_at.min(oldest_at);
    }
    backlogs.into_values().collect()
}

/// Which queues are served, and until when those were that are not; read when it is needed.
#[derive(Default)]
struct Serving {
    now: Option<BTreeSet<QueueName>>,
    before: Option<BTreeMap<QueueName, Timestamp>>,
}

impl Serving {
    /// Until when a queue was served, if it was; until `at` if it is.
    async fn until(
        &mut self,
        store: &dyn Store,
        queue: &QueueName,
        at: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        let now = match self.now.take() {
            Some(now) => now,
            None => served_now(store).await?,
        };
        let is_served = now.contains(queue);
        self.now = Some(now);
        if is_served {
            return Ok(Some(at));
        }
        let before = match self.before.take() {
            Some(before) => before,
            None => served_before(store).await?,
        };
        let until = before.get(queue).copied();
        self.before = Some(before);
        Ok(until)
    }
}

async fn served_now(store: &dyn Store) -> Result<BTreeSet<QueueName>, Error> {
    let mut served = BTreeSet::new();
    let mut filter = WorkerFilter::default();
    for _ in 0..WORKER_PAGES_MAX {
        let page = store.list_workers(filter.clone()).await?;
        let live = page.workers.into_iter().filter(|worker| worker.state == WorkerState::Live);
        served.extend(live.flat_map(|worker| worker.info.queues));
        if page.next.is_none() {
            break;
        }
        filter.after = page.next;
    }
    Ok(served)
}

/// By the newest workers that do not claim any more. One that lived through a page of others is
/// not missed for long: its queue is told of a little early.
async fn served_before(store: &dyn Store) -> Result<BTreeMap<QueueName, Timestamp>, Error> {
    let filter = WorkerFilter { with_dead: true, ..WorkerFilter::default() };
    let mut served: BTreeMap<QueueName, Timestamp> = BTreeMap::new();
    for worker in store.list_workers(filter).await?.workers {
        let until = match worker.state {
            WorkerState::Live => None,
            WorkerState::Draining | WorkerState::Dying => worker.seen_at,
            WorkerState::Dead => worker.ended_at,
        };
        let Some(until) = until else { continue };
        for queue in worker.info.queues {
            let last = served.entry(queue).or_insert(until);
            *last = until.max(*last);
        }
    }
    Ok(served)
}

fn before(at: Timestamp, by: Duration) -> Timestamp {
    let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(at.as_micros().saturating_sub(micros))
}

/// The hour of a time, as a number that grows.
fn hour_of(at: Timestamp) -> i64 {
    let micros = i64::try_from(AGAIN.as_micros()).unwrap_or(i64::MAX);
    at.as_micros().div_euclid(micros)
}

#[cfg(test)]
mod tests;
