//! How much of everything there is room for at once, and how much of it for one origin.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::App;
use crate::bodies::BodyBudget;
use crate::connections::Origin;
use crate::grpc::is_stream;
use crate::options::ServerOptions;
use crate::problem::Problem;
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

    fn give_up(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

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
        }
    }

    /// The memory for bodies.
    pub(super) fn bodies(&self) -> &Arc<BodyBudget> {
        &self.bodies
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
