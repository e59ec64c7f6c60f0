//! Duties of programs: what is to be done once in a while, by one process at a time, as stores
//! keep it.
//!
//! A duty of a program has a row with its next nominal time and with who is at it. A process that
//! has its handler claims it once that time has come, for a term and under a lease; it renews the
//! lease while the handler runs, and says how it ended, which moves the duty on to its next time.
//! If it dies, the nominal time is still due, and whoever asks once the lease is over begins the
//! next term with it. Terms never go back, and whoever was replaced changes nothing any more.
//!
//! What both stores make of a claim and of an end is decided here. When to ask, to renew and to
//! end is decided in `duties`. The background duties of Windlass itself are not rows of this kind:
//! they have leaders, see [`LeaderRecord`](super::LeaderRecord).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::name::NAME_BYTES_MAX;
use windlass_core::{CandidateId, DutyName, Term, Timestamp};

use super::{StoreError, Tally};
use crate::worker::SETTING_MAX;

/// The most duties of programs in a store.
pub const DUTIES_MAX: usize = 1_000;

/// The most duties of one process.
pub const PROCESS_DUTIES_MAX: usize = 100;

/// The shortest interval of a duty: what is to happen more often has a loop of its own.
pub const EVERY_MIN: Duration = Duration::from_secs(1);

/// A duty as a process declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyDeclaration {
    /// Its name in the whole store.
    pub name: DutyName,
    /// How often it is to be done, from [`EVERY_MIN`] to ten years.
    pub every: Duration,
    /// Whether this interval holds whatever was declared before. A process says so until it is
    /// first answered: of several that declare different ones, the newest decides.
    pub is_new: bool,
}

/// A process asks for those of its duties that are due and that nobody is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyClaim {
    /// Who it is, for as long as it asks.
    pub candidate: CandidateId,
    /// What people call it.
    pub process: String,
    /// How long after this another may begin what it was given, if it is not heard of.
    pub ttl: Duration,
    /// What it has handlers for and is not at, up to [`PROCESS_DUTIES_MAX`], each once.
    pub duties: Vec<DutyDeclaration>,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyStanding {
    /// The time of the answer.
    pub at: Timestamp,
    /// Each duty that was asked for, in that order, as it is now.
    pub duties: Vec<DutyRecord>,
}

/// The right to do a duty, by which a store knows who is at it from those who were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyMandate {
    /// The duty.
    pub name: DutyName,
    /// Who does it.
    pub candidate: CandidateId,
    /// The term it was given for.
    pub term: Term,
}

/// How a handler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DutyOutcome {
    /// It did what it was to do.
    Succeeded,
    /// It did not, and this is why. It is tried again when the next time has come.
    Failed(String),
    /// Its process ends before it does: the same nominal time is left to another at once.
    GivenUp,
}

/// The end of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyEnd {
    /// Whose.
    pub mandate: DutyMandate,
    /// How long the handler took.
    pub took: Duration,
    /// How it ended.
    pub outcome: DutyOutcome,
}

/// A duty of a program as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyRecord {
    /// Its name.
    pub name: DutyName,
    /// How often it is done.
    pub every: Duration,
    /// The nominal time that is served next, or now by who is at it.
    pub next_at: Timestamp,
    /// The number of the present term, or of the last; 0 if it was never begun.
    pub term: Term,
    /// Who is at it, or was last.
    pub holder: Option<DutyHolder>,
    /// How many times a handler ended, well or not.
    pub runs: u64,
    /// How many of them failed, and how often a process was lost at it.
    pub errors: u64,
    /// When the handler that ended last had begun, and how long it took.
    pub last_run: Option<(Timestamp, Duration)>,
    /// What the last error was.
    pub last_error: Option<String>,
}

/// Who is at a duty, or was last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyHolder {
    /// Who it is.
    pub candidate: CandidateId,
    /// What people call the process.
    pub process: String,
    /// Since when it had it.
    pub since: Timestamp,
    /// From when on another may begin the next term; none if it has ended.
    pub until: Option<Timestamp>,
}

/// The verbs of duties of programs.
///
/// Every verb is atomic, and safe to repeat when its answer was lost.
#[async_trait]
pub trait DutyStore {
    /// Makes duties known that are not, and begins a term of each that is due, unless someone is
    /// at it whose lease is not over. What the candidate has already it keeps, with a new lease.
    /// Answers how all of them are: those that are [held](DutyRecord::is_held_by) by the candidate
    /// are its to do.
    ///
    /// A duty that is new is due at once. An interval that makes no sense, more than
    /// [`PROCESS_DUTIES_MAX`] duties or a store with more than [`DUTIES_MAX`] is a
    /// [`StoreError::Conflict`].
    async fn claim_duties(&self, claim: DutyClaim) -> Result<DutyStanding, StoreError>;

    /// Renews the leases of terms for `ttl` from now, and answers the names of those that are not
    /// over. A lease that is late is renewed as long as nobody began the next term.
    async fn renew_duties(
        &self,
        mandates: Vec<DutyMandate>,
        ttl: Duration,
    ) -> Result<Vec<DutyName>, StoreError>;

    /// Ends a term: writes down how it went, and moves the duty on to the first of its times that
    /// is in the future, or leaves it due if it was [given up](DutyOutcome::GivenUp), with a
    /// [hint](super::Store::leader_hints). Answers the time and the duty as it is then, also if the
    /// term was ended before; none if the term is another's or over, and then nothing is changed.
    async fn end_duty(&self, end: DutyEnd) -> Result<Option<(Timestamp, DutyRecord)>, StoreError>;

    /// All duties of programs, by name.
    async fn list_duties(&self) -> Result<Vec<DutyRecord>, StoreError>;

    /// Forgets a duty that nobody declares any more, with its terms; answers whether there was
    /// one. One that someone is at is a [`StoreError::Conflict`]. A process that still declares it
    /// makes it known again, and it is due then.
    async fn forget_duty(&self, name: DutyName) -> Result<bool, StoreError>;
}

impl DutyDeclaration {
    /// Checks the interval. The error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        let DutyDeclaration { name, every, .. } = self;
        if *every < EVERY_MIN {
            return Err(format!("duty {name:?}: every {every:?}, the least is {EVERY_MIN:?}"));
        }
        if *every > SETTING_MAX {
            return Err(format!("duty {name:?}: every {every:?}, the limit is {SETTING_MAX:?}"));
        }
        Ok(())
    }
}

impl DutyClaim {
    /// Checks what the types do not.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let (bytes, max) = (self.process.len(), NAME_BYTES_MAX);
        if bytes > max {
            let start: String = self.process.chars().take(24).collect();
            let text = format!("process {start:?} has a name of {bytes} bytes, the limit is {max}");
            return Err(StoreError::Conflict(text));
        }
        if let Some(position) = self.process.find('\0') {
            let process = &self.process;
            let text = format!("the name of process {process:?} has a NUL at byte {position}");
            return Err(StoreError::Conflict(text));
        }
        let count = self.duties.len();
        if count > PROCESS_DUTIES_MAX {
            let process = &self.process;
            let text = format!("{process:?} has {count} duties, the limit is {PROCESS_DUTIES_MAX}");
            return Err(StoreError::Conflict(text));
        }
        self.duties.iter().try_for_each(DutyDeclaration::check).map_err(StoreError::Conflict)
    }
}

/// There are as many duties as there may be.
pub(crate) fn too_many(name: &DutyName) -> StoreError {
    let text = format!("duty {name:?} is one more than the {DUTIES_MAX} that a store may have");
    StoreError::Conflict(text)
}

impl fmt::Display for DutyMandate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DutyMandate { name, term, .. } = self;
        write!(f, "term {term} of the duty {name:?}")
    }
}

impl DutyRecord {
    /// A duty that nobody ever did.
    pub(crate) fn new(name: DutyName, every: Duration, now: Timestamp) -> Self {
        DutyRecord {
            name,
            every,
            next_at: now,
            term: Term(0),
            holder: None,
            runs: 0,
            errors: 0,
            last_run: None,
            last_error: None,
        }
    }

    /// Until when someone is at it.
    pub fn held_until(&self) -> Option<Timestamp> {
        self.holder.as_ref().and_then(|holder| holder.until)
    }

    /// Whether this candidate is at it, as far as the record says.
    pub fn is_held_by(&self, candidate: CandidateId) -> bool {
        let holder = self.holder.as_ref().filter(|holder| holder.until.is_some());
        holder.is_some_and(|holder| holder.candidate == candidate)
    }

    /// Whether it is due and nobody is at it whose lease is not over.
    pub fn is_free(&self, at: Timestamp) -> bool {
        self.next_at <= at && self.held_until().is_none_or(|until| until <= at)
    }

    /// Whether these are the candidate and the term of who has it, or had it last.
    fn is_of(&self, mandate: &DutyMandate) -> bool {
        let is_it = |holder: &DutyHolder| holder.candidate == mandate.candidate;
        self.term == mandate.term && self.holder.as_ref().is_some_and(is_it)
    }

    /// Whether these are the candidate and the term of who is at it.
    pub(crate) fn allows(&self, mandate: &DutyMandate) -> bool {
        self.is_of(mandate) && self.held_until().is_some()
    }

    /// Whether a claim of it writes anything.
    pub(crate) fn is_changed_by(
        &self,
        claim: &DutyClaim,
        declared: &DutyDeclaration,
        now: Timestamp,
    ) -> bool {
        let is_declared_anew = declared.is_new && declared.every != self.every;
        is_declared_anew || self.is_held_by(claim.candidate) || self.is_free(now)
    }

    /// Does what a claim of it says.
    pub(crate) fn claim(&mut self, claim: &DutyClaim, declared: &DutyDeclaration, now: Timestamp) {
        if declared.is_new && declared.every != self.every {
            self.every = declared.every;
            self.next_at = self.next_at.min(now + self.every);
        }
        if self.is_held_by(claim.candidate) {
            self.renew(now + claim.ttl);
        } else if self.is_free(now) {
            self.begin(claim, now);
        }
    }

    /// Begins the next term.
    pub(crate) fn begin(&mut self, claim: &DutyClaim, now: Timestamp) {
        if let Some(lost) = self.holder.as_ref().filter(|holder| holder.until.is_some()) {
            let text = format!("{} was lost at it, in term {}", lost.process, self.term);
            self.note_error(&text);
        }
        self.term = self.term.next();
        self.holder = Some(DutyHolder {
            candidate: claim.candidate,
            process: claim.process.clone(),
            since: now,
            until: Some(now + claim.ttl),
        });
    }

    /// Gives who is at it another lease.
    pub(crate) fn renew(&mut self, until: Timestamp) {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.until.is_some()) {
            holder.until = Some(until);
        }
    }

    /// Does what an end says, if it is that of who is at it or was last; answers whether it is.
    pub(crate) fn end(&mut self, end: &DutyEnd, now: Timestamp) -> bool {
        if !self.is_of(&end.mandate) {
            return false;
        }
        if self.held_until().is_some() {
            self.apply(end, now);
        }
        true
    }

    pub(crate) fn apply(&mut self, end: &DutyEnd, now: Timestamp) {
        let since = self.holder.as_mut().map(|holder| {
            holder.until = None;
            holder.since
        });
        match &end.outcome {
            DutyOutcome::GivenUp => return,
            DutyOutcome::Succeeded => {}
            DutyOutcome::Failed(error) => self.note_error(error),
        }
        self.runs += 1;
        self.last_run = since.map(|since| (since, end.took));
        self.next_at = self.next_after(now);
    }

    /// The first of its times that is in the future: a whole number of intervals behind the one
    /// that was served, however late that was.
    fn next_after(&self, now: Timestamp) -> Timestamp {
        let late = now.since(self.next_at).as_micros();
        let every = self.every.as_micros().max(1);
        let micros = (late / every + 1).saturating_mul(every);
        self.next_at + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Refuses to forget one that someone is at.
    pub(crate) fn check_forgettable(&self, now: Timestamp) -> Result<(), StoreError> {
        let holder = self.holder.as_ref();
        match holder.filter(|holder| holder.until.is_some_and(|until| until > now)) {
            None => Ok(()),
            Some(DutyHolder { process, .. }) => {
                Err(StoreError::Conflict(format!("{process} is at the duty {:?}", self.name)))
            }
        }
    }

    /// Counts an error, with what can be stored and shown of it.
    fn note_error(&mut self, error: &str) {
        let mut tally = Tally::default();
        tally.note_error(error);
        self.errors += tally.errors;
        self.last_error = tally.last_error;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn the_next_time_is_a_whole_number_of_intervals_behind_the_one_that_was_served() {
        let name = DutyName::new("sweep").expect("it is a name");
        let mut record = DutyRecord::new(name, Duration::from_secs(60), at(1_000));
        let next = |record: &DutyRecord, now| record.next_after(at(now));
        assert_eq!(next(&record, 1_000), at(1_060));
        assert_eq!(next(&record, 1_059), at(1_060));
        assert_eq!(next(&record, 1_060), at(1_120), "one that comes now was missed");
        assert_eq!(next(&record, 10_000), at(10_060));
        // A clock that went back does not let it come twice.
        assert_eq!(next(&record, 10), at(1_060));
        record.every = SETTING_MAX;
        assert_eq!(next(&record, i64::MAX / 1_000_000), Timestamp::MAX);
    }
}
