//! How much of everything there is room for at once, and how much of it for one origin.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Request};
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::App;
use crate::bodies::BodyBudget;
use crate::connections::Origin;
use crate::grpc::is_stream;
use crate::options::ServerOptions;
use crate::problem::Problem;
use crate::refusal_delay::RefusalDelay;
use crate::room::{Full, Place, Room};

/// The place of a request among those that are under way. One that is held gives it up.
#[derive(Clone)]
pub(super) struct Slot(Arc<Mutex<Option<Place>>>);

impl Slot {
    /// This place.
    pub(super) fn new(place: Place) -> Self {
        Slot(Arc::new(Mutex::new(Some(place))))
    }

    /// Keeps the place until the last of an answer was taken.
    pub(super) fn during(self, body: Body) -> Body {
        Body::new(Kept { body, _slot: self })
    }

    /// Gives the place up.
    pub(super) fn give_up(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The memory for answers that are not streams, in bytes.
const ANSWER_BYTES_MAX: usize = 128 << 20;

/// How much of an answer the connection takes at a time.
const ANSWER_PIECE_BYTES: usize = 64 << 10;

/// How much of everything there is room for. Each kind has its own, so that what takes long keeps
/// nobody out who wants something else.
pub(super) struct Rooms {
    /// Requests that are worked on.
    requests: Arc<Room>,
    /// Requests that are held.
    held: Arc<Room>,
    /// Calls of gRPC.
    calls: Arc<Room>,
    /// Streams of gRPC, which live as long as whoever opened them.
    streams: Arc<Room>,
    bodies: Arc<BodyBudget>,
    /// Bytes of answers that are not streams, until the client has read them.
    answers: Arc<Room>,
    refusals: RefusalDelay,
}

impl Rooms {
    /// As the options say, with so many bytes for one body.
    pub(super) fn new(options: &ServerOptions, body_bytes_max: usize) -> Self {
        let room = |most| Room::new(most, options.address_share_percent, 1);
        Rooms {
            requests: room(options.requests_max),
            held: room(options.held_max),
            calls: room(options.held_max),
            streams: room(options.streams_max),
            bodies: Arc::new(BodyBudget::new(options, body_bytes_max)),
            answers: Room::new(ANSWER_BYTES_MAX, options.address_share_percent, body_bytes_max),
            refusals: RefusalDelay::new(),
        }
    }

    /// The delay of refusals.
    pub(super) fn refusals(&self) -> &RefusalDelay {
        &self.refusals
    }

    /// The memory for bodies.
    pub(super) fn bodies(&self) -> &Arc<BodyBudget> {
        &self.bodies
    }

    /// Charges an answer to the memory for answers, until the client has read it. A small one is not
    /// charged: the connection takes it whole, and it may have a secret that is shown only once.
    ///
    /// # Errors
    ///
    /// A problem if clients have yet to read too many others.
    pub(super) fn charge(&self, origin: Origin, response: Response) -> Result<Response, Problem> {
        let Some(bytes) = response.body().size_hint().exact() else { return Ok(response) };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes <= ANSWER_PIECE_BYTES {
            return Ok(response);
        }
        // One answer always fits if the address has no other.
        let place = self.answers.take(origin, bytes.min(self.answers.share()));
        let place = place.map_err(|full| match full {
            Full::All => Problem::busy("too many bytes of answers wait to be read"),
            Full::Share => {
                Problem::busy("too many bytes of answers to your address wait to be read")
            }
        })?;
        Ok(response.map(|body| Body::new(Charged { body, rest: Bytes::new(), _place: place })))
    }

    /// A place for a request of this kind.
    pub(super) fn place(&self, parts: &Parts, is_grpc: bool) -> Result<Place, Problem> {
        let (room, what) = match is_grpc {
            true if is_stream(parts.uri.path()) => (&self.streams, "streams"),
            true => (&self.calls, "requests"),
            false => (&self.requests, "requests"),
        };
        let place = room.take(origin_of(&parts.extensions), 1);
        place.map_err(|full| refused(full, what, "under way"))
    }
}

/// Says why there is no room.
fn refused(full: Full, what: &str, how: &str) -> Problem {
    match full {
        Full::All => Problem::busy(&format!("too many {what} are {how}")),
        Full::Share => Problem::busy(&format!("too many {what} from your address are {how}")),
    }
}

/// Where a request comes from, as its connection says. One without a connection is of this
/// process.
pub(super) fn origin_of(extensions: &Extensions) -> Origin {
    extensions.get::<Origin>().copied().unwrap_or(Origin::Socket)
}

/// A request that is held: it gives its place among the others up, for one of its own kind.
pub(crate) struct Held {
    _place: Place,
}

impl FromRequestParts<App> for Held {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let place = app.rooms().held.take(origin_of(&parts.extensions), 1);
        let place = place.map_err(|full| refused(full, "requests", "held"))?;
        if let Some(slot) = parts.extensions.get::<Slot>() {
            slot.give_up();
        }
        Ok(Held { _place: place })
    }
}

/// Counts the bytes of a request body that were received.
#[derive(Clone, Default)]
pub(super) struct Received(Arc<AtomicU64>);

impl Received {
    /// Counts the body of a request, unless it is that of a stream, which is never received in vain.
    pub(super) fn count(&self, request: Request) -> Request {
        if request.body().is_end_stream() || is_stream(request.uri().path()) {
            return request;
        }
        let received = self.clone();
        request.map(|body| Body::new(Counted { body, received }))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request body whose bytes are counted.
struct Counted {
    body: Body,
    received: Received,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.received.0.fetch_add(bytes, Ordering::Relaxed);
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

/// An answer whose bytes are charged until it was read. It is sent in pieces: the connection would
/// otherwise take it whole, and keep it for a client that does not read.
struct Charged {
    body: Body,
    rest: Bytes,
    _place: Place,
}

impl HttpBody for Charged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let bytes = self.rest.len().min(ANSWER_PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.size_hint().exact().unwrap_or(0);
        SizeHint::with_exact(body + self.rest.len() as u64)
    }
}

/// An answer that keeps its place until its last was taken.
struct Kept {
    body: Body,
    _slot: Slot,
}

impl HttpBody for Kept {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
    use crate::identity::Access;

    fn answer(bytes: usize) -> Response {
        Response::new(Body::from(vec![0; bytes]))
    }

    #[test]
    fn a_small_answer_is_never_refused_and_a_single_large_one_always_fits() {
        let mut options = ServerOptions::new(Access::insecure_dev());
        options.address_share_percent = 1;
        let rooms = Rooms::new(&options, 1 << 20);
        let origin = Origin::Machine([192, 0, 2, 1].into());
        let unread = rooms.charge(origin, answer(4 << 20)).expect("it is the only one");
        let refused = rooms.charge(origin, answer(ANSWER_PIECE_BYTES + 1)).unwrap_err();
        assert!(refused.detail().contains("answers to your address"), "{refused:?}");
        assert!(rooms.charge(origin, answer(ANSWER_PIECE_BYTES)).is_ok());
        drop(unread);
        assert!(rooms.charge(origin, answer(4 << 20)).is_ok());
    }
}
