//! Whoever waits for runs to end.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use windlass::store::StoreError;
use windlass::wire::{Wire, parse};
use windlass_core::RunId;
use windlass_proto::v1;

use super::{Caller, Refused};

/// How long one call waits at most.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How soon a waiter looks again after a look, whatever is hinted at.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// How soon a waiter looks again without a hint; it doubles up to the second one.
const POLL_FIRST: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(5);

/// By how much each waiter lets all others look later: together they look no more than so often.
const LOOK_SHARE: Duration = Duration::from_millis(2);

/// The time between two hints of a stream.
const HINT_PAUSE: Duration = Duration::from_millis(50);

/// The time between two hints of a stream of one tenant.
const SCOPED_HINT_PAUSE: Duration = Duration::from_millis(500);

/// Hints that runs have ended.
pub(super) type RunHints = Pin<Box<dyn Stream<Item = Result<v1::RunHint, Status>> + Send>>;

/// How many wait.
#[derive(Default)]
pub(super) struct Waiters(AtomicU32);

/// One who waits.
struct Waiter<'a>(&'a Waiters);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waiters {
    fn join(&self) -> Waiter<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Waiter(self)
    }

    /// How soon one of them looks again.
    fn pause(&self) -> Duration {
        LOOK_PAUSE.max(LOOK_SHARE * self.0.load(Ordering::Relaxed))
    }

    pub(super) async fn wait_run(
        &self,
        caller: &Caller,
        message: v1::WaitRunRequest,
        stopping: &CancellationToken,
    ) -> Result<v1::WaitRunReply, Refused> {
        let run: RunId = parse("run", &message.run)?;
        let limit = match Duration::from_micros(message.timeout_us) {
            Duration::ZERO => WAIT_MAX,
            limit => limit.min(WAIT_MAX),
        };
        let deadline = Instant::now() + limit;
        let _waiter = self.join();
        let mut hints = caller.store.run_hints();
        let mut poll = POLL_FIRST;
        loop {
            hints.take();
            let missing = || StoreError::NotFound(format!("run {run}"));
            let record = caller.store.get_run(run).await?.ok_or_else(missing)?;
            let reply = v1::WaitRunReply { run: Some(record.to_wire()) };
            if record.state.is_final() {
                return Ok(reply);
            }
            let (looked, pause) = (Instant::now(), self.pause());
            let hinted = async {
                hints.changed().await;
                sleep_until(looked + pause).await;
            };
            tokio::select! {
                biased;
                () = stopping.cancelled() => return Ok(reply),
                () = sleep_until(deadline) => return Ok(reply),
                () = hinted => {}
                () = sleep_until(looked + poll.max(pause)) => poll = (poll * 2).min(POLL_MAX),
            }
        }
    }
}

/// Streams hints until the client disconnects or the server stops. Hints of the store are about runs of all
/// tenants: who has one tenant is hinted at regular times instead, which tell nothing of others.
pub(super) fn watch_runs(caller: &Caller, stopping: CancellationToken) -> RunHints {
    let is_scoped = caller.identity.tenant().is_some();
    let state = (caller.store.run_hints(), stopping, Instant::now());
    Box::pin(stream::unfold(state, move |(mut hints, stopping, from)| async move {
        let next = async {
            if is_scoped {
                return sleep_until(from + SCOPED_HINT_PAUSE).await;
            }
            sleep_until(from).await;
            hints.changed().await;
        };
        tokio::select! {
            biased;
            () = stopping.cancelled() => return None,
            () = next => {}
        }
        Some((Ok(v1::RunHint {}), (hints, stopping, Instant::now() + HINT_PAUSE)))
    }))
}
