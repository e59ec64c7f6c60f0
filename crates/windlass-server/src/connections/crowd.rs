//! Who is connected, and who gives way when there are too many.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::listener::Origin;

/// Everyone who is connected.
pub(super) struct Crowd {
    most: usize,
    most_of_one: usize,
    /// Counts whatever anyone does, so that it is known who did nothing for the longest time.
    clock: AtomicU64,
    members: Mutex<HashMap<u64, Arc<State>>>,
}

/// What is known of a connection.
pub(super) struct State {
    origin: Origin,
    has_begun: AtomicBool,
    requests: AtomicUsize,
    quiet_since: AtomicU64,
    displaced: CancellationToken,
}

/// A connection, for as long as this is kept.
pub(super) struct Member {
    number: u64,
    state: Arc<State>,
    crowd: Weak<Crowd>,
}

impl Crowd {
    /// For so many at once, and so many of one origin.
    pub(super) fn new(most: usize, most_of_one: usize) -> Self {
        Crowd { most, most_of_one, clock: AtomicU64::new(0), members: Mutex::default() }
    }

    fn members(&self) -> MutexGuard<'_, HashMap<u64, Arc<State>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// A place for a connection; none if all are busy, or all of its origin when that has as many
    /// as it may have.
    pub(super) fn enter(self: &Arc<Self>, origin: Origin) -> Option<Arc<Member>> {
        let is_own = |state: &State| state.origin == origin;
        let own = self.members().values().filter(|state| is_own(state)).count();
        if own >= self.most_of_one && !self.make_room(is_own) {
            return None;
        }
        let is_full = self.members().len() >= self.most;
        if is_full && !self.make_room(|_| true) {
            return None;
        }
        let number = self.tick();
        let state = Arc::new(State {
            origin,
            has_begun: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            quiet_since: AtomicU64::new(number),
            displaced: CancellationToken::new(),
        });
        self.members().insert(number, Arc::clone(&state));
        Some(Arc::new(Member { number, state, crowd: Arc::downgrade(self) }))
    }

    /// Drops the connection of these that has had nothing to do for the longest time; answers
    /// whether there was one.
    pub(super) fn make_room(&self, among: impl Fn(&State) -> bool) -> bool {
        let mut members = self.members();
        let quiet = members
            .iter()
            .filter(|(_, state)| among(state) && state.requests.load(Ordering::SeqCst) == 0)
            .min_by_key(|(_, state)| state.quiet_since.load(Ordering::Relaxed))
            .map(|(number, _)| *number);
        let Some(state) = quiet.and_then(|number| members.remove(&number)) else { return false };
        state.displaced.cancel();
        true
    }
}

impl Member {
    /// Where it comes from.
    pub(super) fn origin(&self) -> Origin {
        self.state.origin
    }

    /// A request begins.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.state.has_begun.store(true, Ordering::SeqCst);
        self.state.requests.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(self))
    }

    /// Whether a request ever began.
    pub(super) fn has_begun(&self) -> bool {
        self.state.has_begun.load(Ordering::SeqCst)
    }

    /// Whether a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.state.requests.load(Ordering::SeqCst) > 0
    }

    /// Waits until another takes its place.
    pub(super) async fn displaced(&self) {
        self.state.displaced.cancelled().await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(crowd) = self.crowd.upgrade() {
            crowd.members().remove(&self.number);
        }
    }
}

/// A request that is under way.
pub(super) struct Busy(Arc<Member>);

impl Busy {
    /// Until the last of the answer was taken. A connection that takes nothing of it for so long,
    /// as one does over HTTP/2 that reads and gives no leave to send, is closed.
    pub(super) fn during(self, body: Body, untaken_max: Duration) -> Body {
        let mut body = BusyBody { body, busy: self, untaken_max, untaken: None };
        body.watch();
        Body::new(body)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Member { state, crowd, .. } = &*self.0;
        if let Some(crowd) = crowd.upgrade() {
            state.quiet_since.store(crowd.tick(), Ordering::Relaxed);
        }
        state.requests.fetch_sub(1, Ordering::SeqCst);
    }
}

struct BusyBody {
    body: Body,
    busy: Busy,
    untaken_max: Duration,
    /// Closes the connection unless more is asked for in time.
    untaken: Option<AbortHandle>,
}

impl BusyBody {
    /// What comes next must be asked for in time.
    fn watch(&mut self) {
        let (time, displaced) = (self.untaken_max, self.busy.0.state.displaced.clone());
        let closing = tokio::spawn(async move {
            tokio::time::sleep(time).await;
            displaced.cancel();
        });
        self.untaken = Some(closing.abort_handle());
    }

    fn is_taken(&mut self) {
        if let Some(closing) = self.untaken.take() {
            closing.abort();
        }
    }
}

impl Drop for BusyBody {
    fn drop(&mut self) {
        self.is_taken();
    }
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_taken();
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(Some(Ok(_)))) {
            self.watch();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_said_nothing_for_the_longest_time_gives_way() {
        let crowd = Arc::new(Crowd::new(2, 2));
        let is_displaced = |member: &Arc<Member>| member.state.displaced.is_cancelled();
        let first = crowd.enter(Origin::Socket).unwrap();
        let second = crowd.enter(Origin::Socket).unwrap();
        drop(first.begin());
        let third = crowd.enter(Origin::Socket).unwrap();
        assert!(is_displaced(&second) && !is_displaced(&first));
        let (one, other) = (first.begin(), third.begin());
        assert!(crowd.enter(Origin::Socket).is_none(), "all are busy");
        assert!(!is_displaced(&first) && !is_displaced(&third));
        drop(one);
        assert!(crowd.enter(Origin::Socket).is_some() && is_displaced(&first));
        drop(other);
    }

    #[test]
    fn whoever_leaves_makes_room() {
        let crowd = Arc::new(Crowd::new(1, 1));
        let only = crowd.enter(Origin::Socket).unwrap();
        let busy = only.begin();
        assert!(crowd.enter(Origin::Socket).is_none());
        drop((busy, only));
        assert!(crowd.members().is_empty() && crowd.enter(Origin::Socket).is_some());
    }

    #[test]
    fn one_origin_cannot_take_all_places() {
        let crowd = Arc::new(Crowd::new(3, 2));
        let machine = Origin::Machine([192, 0, 2, 1].into());
        let (first, second) = (crowd.enter(machine).unwrap(), crowd.enter(machine).unwrap());
        let (one, other) = (first.begin(), second.begin());
        assert!(crowd.enter(machine).is_none(), "it has as many as it may have");
        let third = crowd.enter(Origin::Socket).unwrap();
        drop(one);
        assert!(crowd.enter(machine).is_some());
        assert!(first.state.displaced.is_cancelled() && !third.state.displaced.is_cancelled());
        drop(other);
    }
}
