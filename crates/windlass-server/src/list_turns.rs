//! Shares what the database can read between the tenants that read lists.
//!
//! A list may scan every run of its tenant. A tenant, or a token for all tenants, reads
//! [`LISTS_AT_ONCE`] lists at a time, and after each the turn rests for [`REST_FACTOR`] times as long
//! as the list took. However many tokens a tenant has, its lists therefore take at most half of the
//! time of one database connection if each takes less than 3 s, and less than two connections in any
//! case. Further lists wait for a turn; most take milliseconds, so a client that reads one after the
//! other notices nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};
use windlass::store::StoreError;
use windlass::{Tenant, TokenId};

/// The number of lists of one reader in progress at a time.
const LISTS_AT_ONCE: usize = 2;

/// The number of lists of one reader in progress or waiting at a time.
pub(crate) const LISTS_MAX: usize = 32;

/// The rest after a list, as a multiple of the time that the list took.
const REST_FACTOR: u32 = 3;

/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(10);

/// The longest time for which a list waits for its turn.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The time after which a refused client may retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The number of readers from which on those that rested are removed.
const READERS_KEPT: usize = 1_024;

/// Who shares turns: the tokens of a tenant, or one token for all tenants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reader {
    Tenant(Tenant),
    Token(TokenId),
}

/// The turns of every reader.
#[derive(Debug, Default)]
pub(crate) struct ListTurns(Mutex<HashMap<Reader, Arc<Turns>>>);

/// The turns of one reader.
#[derive(Debug)]
struct Turns {
    free: Arc<Semaphore>,
    /// When each free turn has rested.
    rested_at: Mutex<Vec<Instant>>,
}

impl Turns {
    fn new() -> Arc<Self> {
        let rested_at = Mutex::new(vec![Instant::now(); LISTS_AT_ONCE]);
        Arc::new(Turns { free: Arc::new(Semaphore::new(LISTS_AT_ONCE)), rested_at })
    }

    fn rested_at(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.rested_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the free turn that has rested, or will have, before the others.
    fn take_first_rested(&self) -> Instant {
        let mut rested_at = self.rested_at();
        let first = (0..rested_at.len()).min_by_key(|at| rested_at[*at]);
        rested_at.swap_remove(first.expect("a permit is held for each turn that is taken"))
    }

    fn has_rested(&self) -> bool {
        let now = Instant::now();
        self.rested_at().iter().all(|at| *at <= now)
    }
}

impl ListTurns {
    /// Waits for a turn of a reader. The turn ends when the result is dropped.
    ///
    /// # Errors
    ///
    /// `Limited` if [`LISTS_MAX`] lists of the reader are in progress or waiting, or if no turn is free
    /// within [`WAIT_MAX`].
    pub(crate) async fn begin(&self, reader: Reader) -> Result<ListTurn, StoreError> {
        let turns = self.of(&reader)?;
        match timeout(WAIT_MAX, ListTurn::begin(turns)).await {
            Ok(turn) => Ok(turn),
            Err(_) => Err(refused(&reader, &format!("none of its turns was free in {WAIT_MAX:?}"))),
        }
    }

    fn of(&self, reader: &Reader) -> Result<Arc<Turns>, StoreError> {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Every list in progress or waiting has a reference, and so has the map.
        let is_idle = |turns: &Arc<Turns>| Arc::strong_count(turns) == 1 && turns.has_rested();
        if readers.len() >= READERS_KEPT {
            readers.retain(|_, turns| !is_idle(turns));
        }
        let turns = readers.entry(reader.clone()).or_insert_with(Turns::new);
        if Arc::strong_count(turns) > LISTS_MAX {
            let why =
                format!("{LISTS_MAX} of its lists are in progress or waiting, which is the limit");
            return Err(refused(reader, &why));
        }
        Ok(Arc::clone(turns))
    }
}

fn refused(reader: &Reader, why: &str) -> StoreError {
    let reader = match reader {
        Reader::Tenant(tenant) => format!("tenant {:?}", tenant.as_str()),
        Reader::Token(token) => format!("token {token}"),
    };
    let why =
        format!("{reader} reads too many lists: {why}; wait for an answer before the next request");
    StoreError::Limited { why, retry_after: RETRY_AFTER }
}

/// A list in progress.
#[derive(Debug)]
pub(crate) struct ListTurn {
    turns: Arc<Turns>,
    /// When the turn has rested from the list before.
    rested_at: Instant,
    began: Option<Instant>,
    _permit: OwnedSemaphorePermit,
}

impl ListTurn {
    async fn begin(turns: Arc<Turns>) -> Self {
        let permit = Arc::clone(&turns.free).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let rested_at = turns.take_first_rested();
        // A request that is cancelled while it sleeps gives the turn back as it was.
        let mut turn = ListTurn { turns, rested_at, began: None, _permit: permit };
        sleep_until(rested_at).await;
        turn.began = Some(Instant::now());
        turn
    }
}

impl Drop for ListTurn {
    fn drop(&mut self) {
        let rested_at = match self.began {
            None => self.rested_at,
            Some(began) => Instant::now() + (began.elapsed() * REST_FACTOR).min(REST_MAX),
        };
        self.turns.rested_at().push(rested_at);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::{advance, sleep};

    use super::*;

    fn acme() -> Reader {
        Reader::Tenant(Tenant::new("acme").unwrap())
    }

    fn other() -> Reader {
        Reader::Token(TokenId::from_random(1))
    }

    /// How long a turn takes to come.
    async fn wait_of(turns: &ListTurns, reader: Reader) -> Duration {
        let began = Instant::now();
        turns.begin(reader).await.unwrap();
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn two_lists_of_a_reader_are_in_progress_and_others_wait() {
        let turns = Arc::new(ListTurns::default());
        let first = turns.begin(acme()).await.unwrap();
        let second = turns.begin(acme()).await.unwrap();
        let third = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { wait_of(&turns, acme()).await }
        });
        assert_eq!(wait_of(&turns, other()).await, Duration::ZERO, "readers do not share turns");
        sleep(Duration::from_millis(100)).await;
        drop(first);
        let waited = third.await.unwrap();
        assert_eq!(waited.as_millis(), 400, "100 ms for the list, 300 ms for its rest");
        drop(second);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_rests_three_times_as_long_as_it_took_and_at_most_ten_seconds() {
        let turns = ListTurns::default();
        for (took, rest) in [(10, 30), (1_000, 3_000), (5_000, 10_000)] {
            let both = [turns.begin(acme()).await.unwrap(), turns.begin(acme()).await.unwrap()];
            advance(Duration::from_millis(took)).await;
            drop(both);
            assert_eq!(wait_of(&turns, acme()).await.as_millis(), rest, "after {took} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_gives_up_leaves_the_turn_as_it_was() {
        let turns = ListTurns::default();
        let both = [turns.begin(acme()).await.unwrap(), turns.begin(acme()).await.unwrap()];
        advance(Duration::from_secs(1)).await;
        drop(both);
        for _ in 0..10 {
            let mut waiting = pin!(turns.begin(acme()));
            assert!(timeout(Duration::from_millis(100), &mut waiting).await.is_err());
        }
        assert_eq!(wait_of(&turns, acme()).await.as_millis(), 2_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_waits_too_long_or_behind_too_many_is_refused() {
        let turns = Arc::new(ListTurns::default());
        let both = [turns.begin(acme()).await.unwrap(), turns.begin(acme()).await.unwrap()];
        let waiting: Vec<_> = (2..LISTS_MAX)
            .map(|_| {
                let turns = Arc::clone(&turns);
                tokio::spawn(async move { turns.begin(acme()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let error = turns.begin(acme()).await.unwrap_err();
        let expected = "tenant \"acme\" reads too many lists: 32 of its lists are in progress";
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.retry_after(), Some(RETRY_AFTER));
        assert!(turns.begin(other()).await.is_ok());
        for list in waiting {
            let error = list.await.unwrap().unwrap_err();
            assert!(error.to_string().contains("none of its turns was free in 10s"), "{error}");
        }
        drop(both);
        assert!(turns.begin(acme()).await.is_ok(), "a rest is no longer than a list waits");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_rests_is_kept_however_many_there_are() {
        let turns = ListTurns::default();
        let both = [turns.begin(acme()).await.unwrap(), turns.begin(acme()).await.unwrap()];
        advance(Duration::from_secs(1)).await;
        drop(both);
        for number in 0..READERS_KEPT {
            let token = TokenId::from_random((number as u128) << 64);
            drop(turns.begin(Reader::Token(token)).await.unwrap());
        }
        assert_eq!(wait_of(&turns, acme()).await.as_millis(), 3_000);
    }

    #[tokio::test(start_paused = true)]
    async fn readers_that_have_rested_are_removed() {
        let turns = ListTurns::default();
        let token = |number: usize| Reader::Token(TokenId::from_random((number as u128) << 64));
        let busy = turns.begin(acme()).await.unwrap();
        for number in 1..READERS_KEPT {
            drop(turns.begin(token(number)).await.unwrap());
        }
        assert_eq!(turns.0.lock().unwrap().len(), READERS_KEPT);
        advance(Duration::from_secs(1)).await;
        drop(turns.begin(token(READERS_KEPT)).await.unwrap());
        let kept = turns.0.lock().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert!(kept.contains(&acme()));
        drop(busy);
    }
}
