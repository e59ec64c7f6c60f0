//! The memory budget for request bodies.
//!
//! HTTP and gRPC share one budget, [`ServerOptions::body_bytes_max`], of which one address gets a
//! share. A body is charged as its bytes arrive, never by the length it announces.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use windlass::ErrorKind;

use crate::connections::Origin;
use crate::options::ServerOptions;
use crate::problem::Problem;
use crate::room::{Full, Place, Room};

/// The memory for request bodies.
pub(crate) struct BodyBudget {
    /// In bytes, for all bodies.
    room: Arc<Room>,
    /// The largest HTTP body, in bytes.
    http_bytes_max: usize,
    /// How long a body may take to arrive.
    pub(crate) time_max: Duration,
}

impl BodyBudget {
    /// Creates the budget. One address may always send one body of the largest size.
    pub(crate) fn new(options: &ServerOptions, http_bytes_max: usize) -> Self {
        let (most, percent) = (options.body_bytes_max, options.address_share_percent);
        let room = Room::new(most, percent, http_bytes_max);
        BodyBudget { room, http_bytes_max, time_max: options.body_time_max }
    }

    /// Refuses an HTTP body that is too large.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), Problem> {
        if bytes <= self.http_bytes_max {
            return Ok(());
        }
        Err(too_large(bytes, self.http_bytes_max))
    }

    /// Returns an empty charge that grows as a body arrives.
    pub(crate) fn begin(&self, origin: Origin) -> Charge {
        Charge(self.room.begin(origin))
    }

    /// The refusal of a body that took too long to arrive.
    pub(crate) fn timed_out(&self) -> Problem {
        let detail = format!("body: not received within {:?}", self.time_max);
        Problem::with_status(StatusCode::REQUEST_TIMEOUT, ErrorKind::Argument, detail)
    }
}

/// The refusal of a body that is larger than its limit.
pub(crate) fn too_large(bytes: usize, bytes_max: usize) -> Problem {
    let detail = format!("body: {bytes} bytes are over the limit of {bytes_max}");
    Problem::with_status(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Payload, detail)
}

/// Memory that is charged to the budget until this is dropped.
pub(crate) struct Charge(Place);

impl Charge {
    /// Charges more bytes, or fails and charges none of them.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        self.0.grow(bytes).map_err(|full| match full {
            Full::All => Problem::busy("too many bytes of bodies are being received"),
            Full::Share => {
                Problem::busy("too many bytes of bodies from your address are being received")
            }
        })
    }
}
