//! Who does the background duties.
//!
//! Each duty has one leader at a time, for a term. A candidate that has nobody before it
//! begins the next term; it keeps it by renewing it within its time to live, and whoever
//! finds that over may begin the next. A leader that rotates may be replaced once it has led for
//! its time, whether it renews or not; with nobody else there it goes on. Terms never go back,
//! and every write of a leader names its own: one that was replaced and does not know it changes
//! nothing any more.
//!
//! This module says what stores are told and what they answer. When to campaign, to renew
//! and to sweep is decided in `duties`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use windlass_core::decide::SEALED_TEXT;
use windlass_core::why::DutyFacts;
use windlass_core::{CandidateId, Term, Timestamp};

/// The most characters that are kept of the last error of a duty.
pub const ERROR_CHARS_MAX: usize = 500;

/// The most characters of an error that is kept and that a client has sealed: it cannot be cut.
pub(crate) const SEALED_ERROR_CHARS_MAX: usize = 2_000;

/// Something that happens by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// Make what is due ready.
    PromoteDue,
    /// Take tasks away from dead workers.
    Reap,
    /// Delete runs that are over and older than they are kept.
    Prune,
    /// Start runs whose time has come.
    Schedules,
    /// Add up what came into the queues and what left them.
    Rollup,
    /// Check the promises on the newest runs.
    Audit,
}

impl Duty {
    /// Every duty, in the order in which leaders are listed.
    pub const ALL: [Duty; 6] =
        [Duty::PromoteDue, Duty::Reap, Duty::Prune, Duty::Schedules, Duty::Rollup, Duty::Audit];

    /// Its name in stored data and in what people see.
    pub const fn word(self) -> &'static str {
        match self {
            Duty::PromoteDue => "promote_due",
            Duty::Reap => "reap",
            Duty::Prune => "prune",
            Duty::Schedules => "schedules",
            Duty::Rollup => "rollup",
            Duty::Audit => "audit",
        }
    }

    /// How often it is done even if nothing is known to be due; `None` if it is done only when
    /// something is.
    pub const fn every(self) -> Option<Duration> {
        match self {
            Duty::PromoteDue | Duty::Schedules => None,
            // There are also workers to forget that held nothing.
            Duty::Reap => Some(Duration::from_secs(60)),
            Duty::Prune => Some(Duration::from_secs(60)),
            Duty::Rollup => Some(Duration::from_secs(10)),
            Duty::Audit => Some(Duration::from_secs(600)),
        }
    }

    /// The most that one sweep of it moves: tasks, runs, schedules, changes of queues, or runs
    /// that are looked at.
    pub const fn batch(self) -> usize {
        match self {
            Duty::PromoteDue | Duty::Reap | Duty::Schedules => 1_000,
            Duty::Prune => super::PRUNE_MAX,
            Duty::Rollup => 100_000,
            Duty::Audit => 100,
        }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What a candidate did for a duty since it last said so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many sweeps.
    pub runs: u64,
    /// How many tasks they moved.
    pub items: u64,
    /// How many sweeps failed.
    pub errors: u64,
    /// When the last one was.
    pub last_run_at: Option<Timestamp>,
    /// How long they took, together.
    pub busy: Duration,
    /// How long the last one took.
    pub last_took: Option<Duration>,
    /// Why the last one that failed did, see [`note_error`](Tally::note_error).
    pub last_error: Option<String>,
}

impl Tally {
    /// Counts a sweep that failed at a time, by the store's clock, and keeps the beginning of the
    /// error. [`LeaderRecord::last_error_at`] reads both.
    pub fn note_error_at(&mut self, at: Timestamp, error: impl fmt::Display) {
        self.note_error(format_args!("{at}: {error}"));
    }

    /// Counts a sweep that failed, and keeps the beginning of the error, without control
    /// characters.
    pub fn note_error(&mut self, error: impl fmt::Display) {
        let text: String = error.to_string();
        let is_sealed = text.starts_with(SEALED_TEXT);
        let most = if is_sealed { SEALED_ERROR_CHARS_MAX } else { ERROR_CHARS_MAX };
        let text = text.chars().filter(|letter| !letter.is_control()).take(most);
        self.errors += 1;
        self.last_error = Some(text.collect());
    }
}

/// What a candidate did for each duty.
pub type Tallies = BTreeMap<Duty, Tally>;

/// A process offers to do the duties that nobody does, and keeps those that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// Who it is, for as long as it offers to.
    pub candidate: CandidateId,
    /// What people call it.
    pub name: String,
    /// How long after this it may be replaced if it is not heard of.
    pub ttl: Duration,
    /// How long after a term began another candidate may begin the next one, also if the leader
    /// is heard of; none if it leads for as long as it is.
    pub rotation: Option<Duration>,
    /// What it did since the last candidacy that was answered.
    pub tallies: Tallies,
}

/// The right to do a duty, by which a store knows the leader's writes from those of its
/// predecessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mandate {
    /// The duty.
    pub duty: Duty,
    /// Who does it.
    pub candidate: CandidateId,
    /// The term it was given for.
    pub term: Term,
}

/// When the next thing is to be done, by the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The time of the look.
    pub at: Timestamp,
    /// When the next scheduled task is due; now or in the past if one is.
    pub promote_at: Option<Timestamp>,
    /// When the next lease of a worker that holds tasks ends; now or in the past if one has.
    pub reap_at: Option<Timestamp>,
    /// When the next schedule fires; now or in the past if one is to.
    pub fire_at: Option<Timestamp>,
}

impl Outlook {
    /// When the next thing is to be done for a duty.
    pub fn next_at(&self, duty: Duty) -> Option<Timestamp> {
        match duty {
            Duty::PromoteDue => self.promote_at,
            Duty::Reap => self.reap_at,
            // Not looked up: whoever leads does them once in a while.
            Duty::Prune | Duty::Rollup | Duty::Audit => None,
            Duty::Schedules => self.fire_at,
        }
    }
}

/// The answer to a candidacy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Who leads what now, in the order of [`Duty::ALL`].
    pub leaders: Vec<LeaderRecord>,
    /// When there is something to do.
    pub outlook: Outlook,
}

/// Who does a duty, and how it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderRecord {
    /// The duty.
    pub duty: Duty,
    /// The number of the present term; 0 if nobody ever led.
    pub term: Term,
    /// Who leads, or led last; none if nobody ever did.
    pub holder: Option<Holder>,
    /// How many sweeps there were, of all terms.
    pub runs: u64,
    /// How many tasks they moved.
    pub items: u64,
    /// How many sweeps failed.
    pub errors: u64,
    /// When the last sweep was.
    pub last_run_at: Option<Timestamp>,
    /// How long all sweeps took, together.
    pub busy: Duration,
    /// How long the last sweep took.
    pub last_took: Option<Duration>,
    /// Why the last sweep that failed did.
    pub last_error: Option<String>,
}

impl LeaderRecord {
    /// Returns when the last sweep that failed did, and why. `None` if none failed, or if its time is
    /// not known: earlier versions stored the error alone.
    pub fn last_error_at(&self) -> Option<(Timestamp, &str)> {
        let (at, error) = self.last_error.as_deref()?.split_once(": ")?;
        Some((at.parse().ok()?, error))
    }
}

/// The leader of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Who it is.
    pub candidate: CandidateId,
    /// What people call it.
    pub name: String,
    /// Since when.
    pub since: Timestamp,
    /// When it was last heard of.
    pub renewed_at: Timestamp,
    /// From when on it may be replaced.
    pub until: Timestamp,
    /// From when on it may be replaced although it is heard of; none if never.
    pub rotates_at: Option<Timestamp>,
    /// Whether it gave the duty up, so that anyone may begin the next term at once.
    pub is_given_up: bool,
}

impl Holder {
    /// From when on another candidate may begin the next term, if it was not given up.
    pub(crate) fn replaceable_at(&self) -> Timestamp {
        self.rotates_at.map_or(self.until, |rotates_at| rotates_at.min(self.until))
    }
}

impl LeaderRecord {
    /// A duty that nobody ever did.
    pub(crate) fn vacant(duty: Duty) -> Self {
        LeaderRecord {
            duty,
            term: Term(0),
            holder: None,
            runs: 0,
            items: 0,
            errors: 0,
            last_run_at: None,
            busy: Duration::ZERO,
            last_took: None,
            last_error: None,
        }
    }

    /// What says whether anyone does the duty.
    pub(crate) fn facts(&self) -> DutyFacts {
        let holder = self.holder.as_ref();
        DutyFacts {
            duty: self.duty.word().to_owned(),
            leader: holder.map(|holder| (holder.name.clone(), holder.until)),
            is_given_up: holder.is_some_and(|holder| holder.is_given_up),
        }
    }

    /// Whether this candidate leads, as far as the record says.
    pub fn is_led_by(&self, candidate: CandidateId) -> bool {
        let is_it = |holder: &Holder| holder.candidate == candidate && !holder.is_given_up;
        self.holder.as_ref().is_some_and(is_it)
    }

    /// Whether anyone but the leader may begin the next term at this time.
    pub fn is_free(&self, at: Timestamp) -> bool {
        self.holder
            .as_ref()
            .is_none_or(|holder| holder.is_given_up || holder.replaceable_at() <= at)
    }

    /// Whether this candidate leads and has led for as long as it wants to while others are
    /// there.
    pub(crate) fn makes_room(&self, candidate: CandidateId, at: Timestamp) -> bool {
        let rotates_at = self.holder.as_ref().and_then(|holder| holder.rotates_at);
        self.is_led_by(candidate) && rotates_at.is_some_and(|rotates_at| rotates_at <= at)
    }

    /// Whether these are the candidate and the term of the leader, who may therefore write.
    pub(crate) fn allows(&self, mandate: &Mandate) -> bool {
        self.term == mandate.term && self.is_led_by(mandate.candidate)
    }

    /// Renews the candidate's term or begins the next, if it may.
    pub(crate) fn lead(&mut self, candidacy: &Candidacy, now: Timestamp) {
        let is_mine = self.is_led_by(candidacy.candidate);
        if !is_mine && !self.is_free(now) {
            return;
        }
        let since = self.holder.as_ref().filter(|_| is_mine).map_or(now, |holder| holder.since);
        if !is_mine {
            self.term = self.term.next();
        }
        self.holder = Some(Holder {
            candidate: candidacy.candidate,
            name: candidacy.name.clone(),
            since,
            renewed_at: now,
            until: now + candidacy.ttl,
            rotates_at: candidacy.rotation.map(|rotation| since + rotation),
            is_given_up: false,
        });
        self.add(candidacy.tallies.get(&self.duty));
    }

    /// Gives the duty up, if the candidate has it; answers whether it had.
    pub(crate) fn resign(&mut self, candidate: CandidateId, tallies: &Tallies) -> bool {
        if !self.is_led_by(candidate) {
            return false;
        }
        if let Some(holder) = &mut self.holder {
            holder.is_given_up = true;
        }
        self.add(tallies.get(&self.duty));
        true
    }

    fn add(&mut self, tally: Option<&Tally>) {
        let Some(tally) = tally else { return };
        self.runs += tally.runs;
        self.items += tally.items;
        self.errors += tally.errors;
        // It may have been kept from a term before.
        self.last_run_at = self.last_run_at.max(tally.last_run_at);
        self.busy += tally.busy;
        self.last_took = tally.last_took.or(self.last_took);
        if tally.last_error.is_some() {
            self.last_error.clone_from(&tally.last_error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_kept_with_its_time() {
        let at: Timestamp = "2025-06-15T15:06:40.5Z".parse().expect("it is a time");
        let mut tally = Tally::default();
        tally.note_error_at(at, "the database is away: no route");
        let mut record = LeaderRecord::vacant(Duty::Reap);
        assert_eq!(record.last_error_at(), None);
        record.last_error = tally.last_error;
        assert_eq!(record.last_error_at(), Some((at, "the database is away: no route")));
        record.last_error = Some("without a time: as before".to_owned());
        assert_eq!(record.last_error_at(), None);
    }

    #[test]
    fn the_text_of_an_error_is_cut_and_has_nothing_that_a_terminal_obeys() {
        let mut tally = Tally::default();
        tally.note_error(format!("a\0b\x1b[31mc\n{}", "é".repeat(ERROR_CHARS_MAX)));
        let text = tally.last_error.expect("it was noted");
        assert!(text.starts_with("ab[31mcéé"), "{text}");
        assert_eq!(text.chars().count(), ERROR_CHARS_MAX);
        assert_eq!(tally.errors, 1);
    }
}
