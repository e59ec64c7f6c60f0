//! What the two stores hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use windlass_core::{Event, EventBody, EventId, Reason, RunId, TaskId, Why};

use super::dice::Dice;
use crate::store::{
    DeadLetterFilter, LogEntry, LogFilter, LogPage, PAGE_MAX, RunFilter, Store, StoreError,
};

/// How many runs that ended are looked at again when all that is at work is compared.
const ENDED_SAMPLE: usize = 10;

/// How many times in a hundred a run's record is compared with its tasks and events. The
/// lists of runs hold it too.
const RECORD_PERCENT: u32 = 25;

/// What differs, as texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) what: String,
    pub(super) left: String,
    pub(super) right: String,
}

impl Difference {
    pub(super) fn new<L, R>(what: impl Into<String>, left: &L, right: &R) -> Self
    where
        L: fmt::Debug + ?Sized,
        R: fmt::Debug + ?Sized,
    {
        let (left, right) = (format!("{left:#?}"), format!("{right:#?}"));
        Difference { what: what.into(), left, right }
    }

    /// The first place where two lists differ.
    pub(super) fn of_lists<T: PartialEq + fmt::Debug>(
        what: &str,
        left: &[T],
        right: &[T],
    ) -> Option<Self> {
        let place = (0..left.len().max(right.len())).find(|i| left.get(*i) != right.get(*i))?;
        let what = format!("{what} {} of {} and {}", place + 1, left.len(), right.len());
        Some(Difference::new(what, &left.get(place), &right.get(place)))
    }

    fn unread(what: String, error: &StoreError) -> Self {
        Difference { what, left: "can be read".to_owned(), right: error.to_string() }
    }
}

/// The runs that exist, and how much of them has been compared.
pub(super) struct Comparison {
    left: Arc<dyn Store>,
    right: Arc<dyn Store>,
    runs: BTreeMap<RunId, Watched>,
    /// Runs that have not ended on the left.
    working: BTreeSet<RunId>,
    /// Runs that may have changed since they were compared, the first to have done so
    /// first; those of the newest step are behind `newest`.
    changed: Vec<RunId>,
    newest: usize,
    /// Where the rotating sample goes on.
    sampled: Option<RunId>,
}

/// How far the history of a run has been read.
#[derive(Default)]
struct Watched {
    left_read: Option<EventId>,
    right_read: Option<EventId>,
    /// Events of the left store that have not been found on the right.
    unmatched: Vec<Event>,
}

impl Comparison {
    pub(super) fn new(left: Arc<dyn Store>, right: Arc<dyn Store>) -> Self {
        Comparison {
            left,
            right,
            runs: BTreeMap::new(),
            working: BTreeSet::new(),
            changed: Vec::new(),
            newest: 0,
            sampled: None,
        }
    }

    /// Asks the left store what the newest step did to the runs that are at work and
    /// to those that it named, and answers the new events.
    pub(super) async fn look(&mut self, named: &[RunId]) -> Result<Vec<Event>, Difference> {
        self.newest = self.changed.len();
        let named: BTreeSet<RunId> = named.iter().copied().collect();
        let mut events = Vec::new();
        for run in self.working.union(&named).copied().collect::<Vec<_>>() {
            let read = self.runs.get(&run).and_then(|watched| watched.left_read);
            let new = read_events(&*self.left, run, read, PAGE_MAX).await?;
            if let (Some(last), watched) = (new.last(), self.runs.entry(run).or_default()) {
                watched.left_read = Some(last.id);
                watched.unmatched.extend(new.iter().cloned());
            }
            if self.runs.contains_key(&run) && (!new.is_empty() || named.contains(&run)) {
                self.note_change(run);
            }
            self.note_end(run, &new);
            events.extend(new);
        }
        Ok(events)
    }

    fn note_change(&mut self, run: RunId) {
        if let Some(place) = self.changed.iter().position(|changed| *changed == run) {
            self.changed.remove(place);
            self.newest -= usize::from(place < self.newest);
        }
        self.changed.push(run);
    }

    fn note_end(&mut self, run: RunId, new: &[Event]) {
        for event in new {
            let EventBody::Run(body) = &event.body else { continue };
            if body.to.is_final() {
                self.working.remove(&run);
            } else {
                self.working.insert(run);
            }
        }
    }

    /// Compares one run: one that the newest step changed if there is one, or else
    /// the one that has waited longest, or else whichever comes next.
    pub(super) async fn compare_one(&mut self, dice: &mut Dice) -> Result<(), Difference> {
        let new = self.changed.len() - self.newest;
        let run = if new > 0 {
            self.changed.remove(self.newest + dice.count(0..new))
        } else if !self.changed.is_empty() {
            self.changed.remove(0)
        } else if let Some(run) = self.next_sample() {
            run
        } else {
            return Ok(());
        };
        self.compare_run(run).await?;
        if dice.chance(RECORD_PERCENT) { self.compare_record(run).await } else { Ok(()) }
    }

    fn next_sample(&mut self) -> Option<RunId> {
        let behind = self.sampled.and_then(|last| {
            let mut behind = self.runs.range(last..).map(|(run, _)| *run);
            behind.find(|run| *run > last)
        });
        self.sampled = behind.or_else(|| self.runs.keys().next().copied());
        self.sampled
    }

    /// Compares all runs by their records, those that are at work or have changed
    /// with their tasks and events, and some of those that ended.
    pub(super) async fn compare_working(&mut self) -> Result<(), Difference> {
        self.compare_pages().await?;
        self.compare_dead_letters().await?;
        let mut runs: BTreeSet<RunId> = std::mem::take(&mut self.changed).into_iter().collect();
        runs.extend(&self.working);
        for _ in 0..ENDED_SAMPLE {
            runs.extend(self.next_sample());
        }
        for run in runs {
            self.compare_run(run).await?;
        }
        Ok(())
    }

    /// Compares everything, histories from their first event, in pages of any size.
    pub(super) async fn compare_everything(&mut self, dice: &mut Dice) -> Result<(), Difference> {
        self.compare_pages().await?;
        self.compare_dead_letters().await?;
        self.compare_log().await?;
        self.changed.clear();
        for run in self.runs.keys().copied().collect::<Vec<_>>() {
            self.compare_run(run).await?;
            self.compare_record(run).await?;
            let limit = dice.pick(&[3, 20, PAGE_MAX, PAGE_MAX]);
            let (left, right) = tokio::join!(
                read_events(&*self.left, run, None, PAGE_MAX),
                read_events(&*self.right, run, None, limit),
            );
            compare_events(run, &left?, &right?)?;
        }
        Ok(())
    }

    /// Compares the records of all runs, in pages.
    async fn compare_pages(&self) -> Result<(), Difference> {
        let mut filter = RunFilter::default();
        loop {
            let left = self.left.list_runs(filter.clone());
            let right = self.right.list_runs(filter.clone());
            let (left, right) = tokio::join!(left, right);
            let unread = |error| Difference::unread("the list of runs".to_owned(), &error);
            let (left, right) = (left.map_err(unread)?, right.map_err(unread)?);
            or_difference(Difference::of_lists("run", &left.runs, &right.runs))?;
            if left.next != right.next {
                return Err(Difference::new("the next page", &left.next, &right.next));
            }
            match left.next {
                Some(next) => filter.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Compares all dead letters, in pages.
    async fn compare_dead_letters(&self) -> Result<(), Difference> {
        let mut after = None;
        loop {
            let any = DeadLetterFilter::default;
            let left = self.left.list_dead_letters(any(), after, PAGE_MAX);
            let right = self.right.list_dead_letters(any(), after, PAGE_MAX);
            let (left, right) = tokio::join!(left, right);
            let unread = |error| Difference::unread("the dead letters".to_owned(), &error);
            let (left, right) = (left.map_err(unread)?, right.map_err(unread)?);
            or_difference(Difference::of_lists("dead letter", &left.letters, &right.letters))?;
            after = left.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Compares what operators did, the newest thousand. The numbers are a store's own.
    async fn compare_log(&self) -> Result<(), Difference> {
        let (left, right) = tokio::join!(
            self.left.list_log(LogFilter::default()),
            self.right.list_log(LogFilter::default()),
        );
        let unread = |error| Difference::unread("the log".to_owned(), &error);
        let unnumbered = |page: LogPage| {
            let entries = page.entries.into_iter();
            entries.map(|entry| LogEntry { number: 0, ..entry }).collect::<Vec<_>>()
        };
        let left = unnumbered(left.map_err(unread)?);
        let right = unnumbered(right.map_err(unread)?);
        or_difference(Difference::of_lists("entry of the log", &left, &right))
    }

    /// Compares the tasks of a run, and its events since the last time.
    async fn compare_run(&mut self, run: RunId) -> Result<(), Difference> {
        let watched = self.runs.entry(run).or_default();
        let (left, right, events) = tokio::join!(
            self.left.list_tasks(run, None, PAGE_MAX),
            self.right.list_tasks(run, None, PAGE_MAX),
            read_events(&*self.right, run, watched.right_read, PAGE_MAX),
        );
        let events = events?;
        watched.right_read = events.last().map(|last| last.id).or(watched.right_read);
        compare_events(run, &std::mem::take(&mut watched.unmatched), &events)?;
        let unread = |error| Difference::unread(format!("the tasks of run {run}"), &error);
        let (left, right) = (left.map_err(unread)?, right.map_err(unread)?);
        or_difference(Difference::of_lists(&format!("run {run}, task"), &left, &right))?;
        for index in left.iter().map(|task| task.index) {
            self.compare_steps(TaskId { run, index }).await?;
        }
        Ok(())
    }

    /// Compares what is known of the calls of a task, if the left store knows any.
    async fn compare_steps(&self, task: TaskId) -> Result<(), Difference> {
        let unread = |error| Difference::unread(format!("the calls of task {task}"), &error);
        let left = self.left.list_steps(task, None, PAGE_MAX).await.map_err(unread)?;
        if left.is_empty() && task.index.0 > 0 {
            return Ok(());
        }
        let right = self.right.list_steps(task, None, PAGE_MAX).await.map_err(unread)?;
        or_difference(Difference::of_lists(&format!("task {task}, call"), &left, &right))
    }

    /// Compares why a run that is at work does not go on, and one of its tasks. Answers what both
    /// said.
    pub(super) async fn compare_why(&self, dice: &mut Dice) -> Result<Vec<Why>, Difference> {
        let working: Vec<RunId> = self.working.iter().copied().collect();
        let all: Vec<RunId> = self.runs.keys().copied().collect();
        let from = if dice.chance(80) { &working } else { &all };
        let Some(run) = dice.pick_any(from).copied() else { return Ok(Vec::new()) };
        let unread = |error| Difference::unread(format!("the tasks of run {run}"), &error);
        let tasks = self.left.list_tasks(run, None, PAGE_MAX).await.map_err(unread)?;
        let task = dice.pick_any(&tasks).map(|task| task.name.clone());
        let mut answers = Vec::new();
        for name in [None, task] {
            let (left, right) =
                tokio::join!(self.left.why(run, name.clone()), self.right.why(run, name.clone()));
            let unread = |error| Difference::unread(format!("why run {run} stands"), &error);
            let (mut left, mut right) = (left.map_err(unread)?, right.map_err(unread)?);
            forget_unknown_starts(&mut left, &mut right);
            if left != right {
                let what = format!("why run {run}, task {name:?}, does not go on");
                return Err(Difference::new(what, &left, &right));
            }
            answers.extend(left);
        }
        Ok(answers)
    }

    async fn compare_record(&self, run: RunId) -> Result<(), Difference> {
        let (left, right) = tokio::join!(self.left.get_run(run), self.right.get_run(run));
        let what = format!("run {run}");
        or_difference((left != right).then(|| Difference::new(what, &left, &right)))
    }
}

/// Since when a task runs is in a long history not looked for to the end.
fn forget_unknown_starts(left: &mut Option<Why>, right: &mut Option<Why>) {
    let (Some(left), Some(right)) = (left, right) else { return };
    let is_unknown = |reason: &Reason| matches!(reason, Reason::Running { since: None, .. });
    let tasks = left.tasks.iter().chain(&right.tasks);
    if !tasks.flat_map(|task| &task.reasons).any(is_unknown) {
        return;
    }
    for reason in left.tasks.iter_mut().chain(&mut right.tasks).flat_map(|it| &mut it.reasons) {
        if let Reason::Running { since, .. } = reason {
            *since = None;
        }
    }
}

fn or_difference(difference: Option<Difference>) -> Result<(), Difference> {
    difference.map_or(Ok(()), Err)
}

/// Reads the events of a run behind `after`. Their numbers must grow.
async fn read_events(
    store: &dyn Store,
    run: RunId,
    after: Option<EventId>,
    limit: usize,
) -> Result<Vec<Event>, Difference> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map(|event| event.id).or(after);
        let page = store.list_events(run, after, limit).await;
        let unread = |error| Difference::unread(format!("the events of run {run}"), &error);
        let page = page.map_err(unread)?;
        let before = page.iter().map(|event| Some(event.id));
        if !std::iter::once(after).chain(before).is_sorted_by(|earlier, later| earlier < later) {
            let what = format!("the order of run {run}'s events behind {after:?}");
            return Err(Difference::new(what, "ids that grow", &page));
        }
        let is_last = page.len() < limit;
        events.extend(page);
        if is_last {
            return Ok(events);
        }
    }
}

fn compare_events(run: RunId, left: &[Event], right: &[Event]) -> Result<(), Difference> {
    let unnumbered = |event: &Event| {
        let Event { id: _, run, at, body } = event;
        (*run, *at, body.clone())
    };
    let left: Vec<_> = left.iter().map(unnumbered).collect();
    let right: Vec<_> = right.iter().map(unnumbered).collect();
    or_difference(Difference::of_lists(&format!("run {run}, new event"), &left, &right))
}
