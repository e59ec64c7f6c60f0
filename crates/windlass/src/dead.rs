//! Tasks that failed for good, and what is done about them.

use std::future::{Future, IntoFuture};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;

use windlass_core::{ActionId, Operator};

use crate::error::{Error, ErrorKind};
use crate::store::{
    Author, DeadLetterCursor, DeadLetterFilter, DeadLetterPage, Discard, Pace, Redrive, RefusedRun,
    Store,
};

/// The most runs that were refused that a summary names; all of them are counted.
const REFUSED_MAX: usize = 1_000;

/// The dead letters of a filter, to be listed, redriven and discarded.
///
/// A task that failed for good is a dead letter until someone redrives or discards it. To redrive
/// is to [retry](crate::RunHandle::retry) its run; to discard is to say that nothing is to be done,
/// and leaves the run failed. Who did it is written down ([`Windlass::log`](crate::Windlass::log)).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use windlass::store::DeadLetterFilter;
/// use windlass::{Ctx, TaskError, Windlass, Workflow};
///
/// let mut mail = Workflow::<()>::builder("mail");
/// mail.task("send").run(async |_: Ctx<()>| {
///     Err::<(), _>(TaskError::new("no such mailbox").permanent())
/// });
/// let mail = mail.build()?;
/// let windlass = Windlass::memory();
/// let worker = windlass.worker().register(&mail).spawn()?;
/// let run = windlass.start(&mail, ()).await?;
/// run.wait().await?;
///
/// let dead = windlass.dead_letters(DeadLetterFilter::of_run(run.id()));
/// let page = dead.list(None, 10).await?;
/// assert_eq!(page.letters[0].failure.message, "no such mailbox");
/// let redriven = dead.redrive("anna@example.com").per_second(10).await?;
/// assert_eq!(redriven.runs, 1);
/// # run.wait().await?;
/// # worker.drain().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct DeadLetters {
    store: Arc<dyn Store>,
    filter: DeadLetterFilter,
}

impl DeadLetters {
    pub(crate) fn new(store: Arc<dyn Store>, filter: DeadLetterFilter) -> Self {
        DeadLetters { store, filter }
    }

    /// A page of them behind `after`, the newest first, at most `limit` up to
    /// [`PAGE_MAX`](crate::store::PAGE_MAX).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the store does not answer.
    pub async fn list(
        &self,
        after: Option<DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage, Error> {
        Ok(self.store.list_dead_letters(self.filter.clone(), after, limit).await?)
    }

    /// Lets the runs of all of them go on, the oldest first, in batches; await it. What fails while
    /// it is under way, or was redriven and fails again, is not among them.
    ///
    /// If it fails midway, the runs of the batches before go on, and a repetition goes on with the
    /// rest.
    pub fn redrive(&self, by: impl Into<String>) -> RedriveCall {
        RedriveCall { letters: self.clone(), by: by.into(), per_second: None }
    }

    /// Takes all of them away, in batches; await it. What fails while it is under way is not among
    /// them.
    pub fn discard(&self, by: impl Into<String>) -> DiscardCall {
        DiscardCall { letters: self.clone(), by: by.into() }
    }

    /// The filter, without what fails from now on.
    async fn until_now(&self) -> Result<DeadLetterFilter, Error> {
        // What fails in this very moment by the store's clock has failed.
        let now = self.store.now().await? + std::time::Duration::from_micros(1);
        let until = self.filter.until.map_or(now, |until| until.min(now));
        Ok(DeadLetterFilter { until: Some(until), ..self.filter.clone() })
    }
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetters").field("filter", &self.filter).finish_non_exhaustive()
    }
}

/// A redrive: set it up, then await it.
#[derive(Debug)]
#[must_use = "nothing is redriven until this is awaited"]
pub struct RedriveCall {
    letters: DeadLetters,
    by: String,
    per_second: Option<u32>,
}

/// What a redrive did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedriveSummary {
    /// How many runs go on.
    pub runs: u64,
    /// How many do not.
    pub refused: u64,
    /// The first of those, and why.
    pub examples: Vec<RefusedRun>,
}

impl RedriveCall {
    /// At most so many runs begin in a second, from 1; all at once if nothing is said. The times
    /// are stored with the runs: nobody waits meanwhile.
    pub fn per_second(mut self, runs: u32) -> Self {
        self.per_second = Some(runs);
        self
    }

    async fn call(self) -> Result<RedriveSummary, Error> {
        let by = Author::from(Operator::new(&self.by)?);
        let none = || Error::new(ErrorKind::Argument, "a pace of 0 runs per second never ends");
        let per_second = self.per_second.map(|n| NonZeroU32::new(n).ok_or_else(none));
        let mut pace = per_second.transpose()?.map(|per_second| Pace { per_second, from: None });
        let filter = self.letters.until_now().await?;
        let mut summary = RedriveSummary::default();
        let mut after = None;
        loop {
            let id = ActionId::from_random(fastrand::u128(..));
            let (by, filter) = (by.clone(), filter.clone());
            let redrive = Redrive { id, by, filter, after, limit: 0, pace };
            let answer = self.letters.store.redrive(redrive).await?;
            summary.runs += answer.runs.len() as u64;
            summary.refused += answer.refused.len() as u64;
            let room = REFUSED_MAX - summary.examples.len();
            summary.examples.extend(answer.refused.into_iter().take(room));
            if let Some(pace) = &mut pace {
                pace.from = answer.due;
            }
            match answer.next {
                Some(next) => after = Some(next),
                None => return Ok(summary),
            }
        }
    }
}

impl IntoFuture for RedriveCall {
    type Output = Result<RedriveSummary, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}

/// A discard: await it.
#[derive(Debug)]
#[must_use = "nothing is discarded until this is awaited"]
pub struct DiscardCall {
    letters: DeadLetters,
    by: String,
}

/// What a discard did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscardSummary {
    /// How many dead letters are gone.
    pub letters: u64,
    /// The dead letters of how many runs stay.
    pub refused: u64,
    /// The first of those, and why.
    pub examples: Vec<RefusedRun>,
}

impl DiscardCall {
    async fn call(self) -> Result<DiscardSummary, Error> {
        let by = Author::from(Operator::new(&self.by)?);
        let filter = self.letters.until_now().await?;
        let mut summary = DiscardSummary::default();
        let mut after = None;
        loop {
            let id = ActionId::from_random(fastrand::u128(..));
            let (by, filter) = (by.clone(), filter.clone());
            let discard = Discard { id, by, filter, after, limit: 0 };
            let answer = self.letters.store.discard(discard).await?;
            summary.letters += answer.letters as u64;
            summary.refused += answer.refused.len() as u64;
            let room = REFUSED_MAX - summary.examples.len();
            summary.examples.extend(answer.refused.into_iter().take(room));
            match answer.next {
                Some(next) => after = Some(next),
                None => return Ok(summary),
            }
        }
    }
}

impl IntoFuture for DiscardCall {
    type Output = Result<DiscardSummary, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
