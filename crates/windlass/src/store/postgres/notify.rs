//! Hints between processes: what changed here is told to whoever listens elsewhere.
//!
//! A hint is a guess at when to look, and never needed: nothing here fails a verb or
//! delays it. Notifications are sent apart from the data, after the commit, and what
//! changes while one is under way goes with the next.

use std::ops::BitOr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fault::Fault;
use super::listen::Listener;
use super::options::PostgresOptions;
use super::pool::{Pool, sql};
use crate::Error;
use crate::backoff::Backoff;
use crate::store::{HintSender, Hints};

/// How long changes are gathered before they are told: the notifications of all
/// processes wait for each other when they commit.
const GATHER: Duration = Duration::from_millis(2);

sql!(NOTIFY, "notify.sql", [TEXT]);

/// What a hint is about: any of three.
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
    pub(super) const ALL: Kinds = Kinds(7);

    const LETTERS: [(Kinds, char); 3] =
        [(Kinds::WORK, 'w'), (Kinds::TIMERS, 't'), (Kinds::RUNS, 'r')];

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
    }
}

/// Where a store says what it changed, and where others wait for it. What it runs in the
/// background ends with it.
pub(super) struct Notifier {
    senders: Arc<Senders>,
    pending: Arc<Pending>,
    _ends: DropGuard,
}

/// What is to be told to others.
#[derive(Debug, Default)]
struct Pending {
    kinds: AtomicU8,
    is_there: Notify,
}

impl Notifier {
    /// Begins to tell others, and to listen to them unless the options say not to. A store
    /// that a test steps does nothing by itself.
    pub(super) fn start(options: &PostgresOptions, pool: &Pool) -> Result<Notifier, Error> {
        let ends = CancellationToken::new();
        let senders = Arc::new(Senders::default());
        let pending = Arc::new(Pending::default());
        let target = options.listen_target()?;
        if !options.is_stepped() {
            if let Some(target) = target {
                let listener = Listener::new(target, options, pool.clone(), Arc::clone(&senders));
                tokio::spawn(ends.clone().run_until_cancelled_owned(listener.run()));
            }
            let tell = tell(pool.clone(), Arc::clone(&pending));
            tokio::spawn(ends.clone().run_until_cancelled_owned(tell));
        }
        Ok(Notifier { senders, pending, _ends: ends.drop_guard() })
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

    /// Hints that a run ended.
    pub(super) fn runs(&self) -> Hints {
        self.senders.runs.subscribe()
    }
}

/// Tells other processes, for ever. What could not be told they find by polling.
async fn tell(pool: Pool, pending: Arc<Pending>) {
    let mut backoff = Backoff::default();
    loop {
        pending.is_there.notified().await;
        tokio::time::sleep(GATHER).await;
        let kinds = Kinds(pending.kinds.swap(0, Ordering::SeqCst));
        if kinds.is_none() {
            continue;
        }
        match send(&pool, &kinds.payload()).await {
            Ok(()) => backoff.reset(),
            Err(error) => {
                let pause = backoff.next_pause();
                tracing::debug!(%error, ?pause, "other processes were not told of a change");
                tokio::time::sleep(pause).await;
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
        for bits in 0..8 {
            let kinds = Kinds(bits);
            assert_eq!(Kinds::parse(&kinds.payload()), kinds);
        }
        assert_eq!((Kinds::WORK | Kinds::RUNS).payload(), "wr");
    }

    #[test]
    fn letters_of_later_versions_are_passed_over() {
        assert_eq!(Kinds::parse("xt"), Kinds::TIMERS);
        assert_eq!(Kinds::parse(""), Kinds::NONE);
    }
}
