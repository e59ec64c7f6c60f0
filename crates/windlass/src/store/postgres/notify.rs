//! Hints between processes: what changed here is told to whoever listens elsewhere.
//!
//! A hint is a guess at when to look, and never needed: nothing here fails a verb or
//! delays it. Notifications are sent apart from the data, after the commit, and what
//! changes while one is under way goes with the next.

use std::ops::BitOr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fault::Fault;
use super::listen::Listener;
use super::options::PostgresOptions;
use super::pool::{Pool, sql};
use crate::Error;
use crate::backoff::Backoff;
use crate::store::{HintSender, Hints};

/// How soon after one notification the next follows, with all that has changed in between: the
/// notifications of all processes wait for each other when they commit.
const GATHER: Duration = Duration::from_millis(2);

/// What stands between the letters of a notification and whom it is from.
const ORIGIN_MARK: char = '@';

sql!(NOTIFY, "notify.sql", [TEXT]);

/// Whom notifications are from: a store knows its own, which tell it nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin(u64);

impl Origin {
    pub(super) fn new() -> Self {
        Origin(fastrand::u64(..))
    }

    fn sign(self, kinds: Kinds) -> String {
        format!("{}{ORIGIN_MARK}{:x}", kinds.payload(), self.0)
    }

    /// Whether a notification is from here.
    pub(super) fn is_of(self, payload: &str) -> bool {
        let origin = payload.split_once(ORIGIN_MARK).map(|(_, origin)| origin);
        origin.is_some_and(|origin| u64::from_str_radix(origin, 16) == Ok(self.0))
    }
}

/// What a hint is about: any of four.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const NONE: Kinds = Kinds(0);
    /// Tasks became ready.
    pub(super) const WORK: Kinds = Kinds(1);
    /// Something is due earlier than was known.
    pub(super) const TIMERS: Kinds = Kinds(2);
    /// A run ended.
    pub(super) const RUNS: Kinds = Kinds(4);
    /// A duty was given up.
    pub(super) const LEADERS: Kinds = Kinds(8);
    pub(super) const ALL: Kinds = Kinds(15);

    const LETTERS: [(Kinds, char); 4] =
        [(Kinds::WORK, 'w'), (Kinds::TIMERS, 't'), (Kinds::RUNS, 'r'), (Kinds::LEADERS, 'l')];

    fn has(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn is_none(self) -> bool {
        self == Kinds::NONE
    }

    /// How it is written in a notification.
    pub(super) fn payload(self) -> String {
        Kinds::LETTERS.iter().filter(|(kind, _)| self.has(*kind)).map(|(_, it)| it).collect()
    }

    /// Reads a notification. Letters of later versions are passed over.
    pub(super) fn parse(payload: &str) -> Kinds {
        let payload = payload.split(ORIGIN_MARK).next().unwrap_or_default();
        let is_said = |letter: char| payload.contains(letter);
        let said = Kinds::LETTERS.iter().filter(|(_, letter)| is_said(*letter));
        said.fold(Kinds::NONE, |all, (kind, _)| all | *kind)
    }
}

impl BitOr for Kinds {
    type Output = Kinds;

    fn bitor(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }
}

/// Those in this process who wait for hints.
#[derive(Debug, Default)]
pub(super) struct Senders {
    work: HintSender,
    timers: HintSender,
    runs: HintSender,
    leaders: HintSender,
    /// Whether what other processes say is heard.
    pub(super) hears: AtomicBool,
}

impl Senders {
    pub(super) fn send(&self, kinds: Kinds) {
        if kinds.has(Kinds::WORK) {
            self.work.send();
        }
        if kinds.has(Kinds::TIMERS) {
            self.timers.send();
        }
        if kinds.has(Kinds::RUNS) {
            self.runs.send();
        }
        if kinds.has(Kinds::LEADERS) {
            self.leaders.send();
        }
    }
}

/// Where a store says what it changed, and where others wait for it. What it runs in the
/// background ends with it.
pub(super) struct Notifier {
    senders: Arc<Senders>,
    pending: Arc<Pending>,
    /// `None` if nobody is told.
    origin: Option<Origin>,
    _ends: DropGuard,
}

/// What is to be told to others.
#[derive(Debug)]
struct Pending {
    kinds: AtomicU8,
    is_there: Notify,
    /// When others may be told again.
    next_at: Mutex<Instant>,
}

impl Pending {
    fn new() -> Self {
        let next_at = Mutex::new(Instant::now());
        Pending { kinds: AtomicU8::new(0), is_there: Notify::new(), next_at }
    }

    /// When others may be told again.
    fn next_at(&self) -> MutexGuard<'_, Instant> {
        self.next_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether others may be told now, by whoever asks.
    fn take_turn(&self) -> bool {
        let (mut next_at, now) = (self.next_at(), Instant::now());
        let is_time = *next_at <= now;
        if is_time {
            *next_at = now + GATHER;
        }
        is_time
    }

    fn take(&self) -> Kinds {
        Kinds(self.kinds.swap(0, Ordering::SeqCst))
    }
}

impl Notifier {
    /// Begins to tell others, and to listen to them unless the options say not to. A store
    /// that a test steps does nothing by itself.
    pub(super) fn start(options: &PostgresOptions, pool: &Pool) -> Result<Notifier, Error> {
        let ends = CancellationToken::new();
        let senders = Arc::new(Senders::default());
        let pending = Arc::new(Pending::new());
        let origin = Origin::new();
        let target = options.listen_target()?;
        if !options.is_stepped() {
            if let Some(target) = target {
                let listener =
                    Listener::new(target, options, pool.clone(), Arc::clone(&senders), origin);
                tokio::spawn(ends.clone().run_until_cancelled_owned(listener.run()));
            }
            let tell = tell(pool.clone(), Arc::clone(&pending), origin);
            tokio::spawn(ends.clone().run_until_cancelled_owned(tell));
        }
        let origin = (!options.is_stepped()).then_some(origin);
        Ok(Notifier { senders, pending, origin, _ends: ends.drop_guard() })
    }

    /// One that tells nobody and hears nobody.
    pub(super) fn silent() -> Notifier {
        let (senders, pending) = (Arc::new(Senders::default()), Arc::new(Pending::new()));
        let _ends = CancellationToken::new().drop_guard();
        Notifier { senders, pending, origin: None, _ends }
    }

    /// The statement that tells others what a transaction changes, to be sent right behind its
    /// commit; `None` if they were told something a moment ago, and hear of this soon.
    pub(super) fn news(&self, kinds: Kinds) -> Option<String> {
        let origin = self.origin.filter(|_| !kinds.is_none() && self.pending.take_turn())?;
        // Letters, a mark and digits.
        Some(format!("notify windlass, '{}'", origin.sign(kinds)))
    }

    /// Says that something changed: here at once, elsewhere soon.
    pub(super) fn notify(&self, kinds: Kinds) {
        if kinds.is_none() {
            return;
        }
        self.notify_here(kinds);
        self.pending.kinds.fetch_or(kinds.0, Ordering::SeqCst);
        self.pending.is_there.notify_one();
    }

    /// Says that something changed, in this process only.
    pub(super) fn notify_here(&self, kinds: Kinds) {
        self.senders.send(kinds);
    }

    /// Hints that tasks became ready.
    pub(super) fn work(&self) -> Hints {
        self.senders.work.subscribe()
    }

    /// Hints that something is due earlier than was known.
    pub(super) fn timers(&self) -> Hints {
        self.senders.timers.subscribe()
    }

    /// Hints that a duty was given up.
    pub(super) fn leaders(&self) -> Hints {
        self.senders.leaders.subscribe()
    }

    /// Whether what other processes say is heard.
    pub(super) fn hears(&self) -> bool {
        self.senders.hears.load(Ordering::Relaxed)
    }

    /// Hints that a run ended.
    pub(super) fn runs(&self) -> Hints {
        self.senders.runs.subscribe()
    }
}

/// Tells other processes, for ever. What could not be told they find by polling.
async fn tell(pool: Pool, pending: Arc<Pending>, origin: Origin) {
    let mut backoff = Backoff::default();
    loop {
        pending.is_there.notified().await;
        while !pending.take_turn() {
            let next_at = *pending.next_at();
            sleep_until(next_at).await;
        }
        let kinds = pending.take();
        if kinds.is_none() {
            continue;
        }
        match send(&pool, &origin.sign(kinds)).await {
            Ok(()) => backoff.reset(),
            Err(error) => {
                let pause = backoff.next_pause();
                tracing::debug!(%error, ?pause, "other processes were not told of a change");
                sleep(pause).await;
            }
        }
    }
}

/// Sends one notification.
pub(super) async fn send(pool: &Pool, payload: &str) -> Result<(), Fault> {
    pool.get().await?.query(&NOTIFY, &[&payload]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive_being_written_and_read() {
        for bits in 0..16 {
            let kinds = Kinds(bits);
            assert_eq!(Kinds::parse(&kinds.payload()), kinds);
        }
        assert_eq!((Kinds::WORK | Kinds::RUNS).payload(), "wr");
    }

    #[test]
    fn a_store_knows_its_own_notifications() {
        let (own, other) = (Origin(0xabc), Origin(7));
        let payload = own.sign(Kinds::WORK | Kinds::TIMERS);
        assert_eq!(Kinds::parse(&payload), Kinds::WORK | Kinds::TIMERS);
        assert!(own.is_of(&payload) && !other.is_of(&payload));
        assert!(!own.is_of("w"), "sent by a transaction of a user's");
    }

    #[test]
    fn letters_of_later_versions_are_passed_over() {
        assert_eq!(Kinds::parse("xt"), Kinds::TIMERS);
        assert_eq!(Kinds::parse(""), Kinds::NONE);
    }
}
