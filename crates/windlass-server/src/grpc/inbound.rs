//! Receives gRPC messages: whole, in time, within the memory budget, and weighed before they are
//! decoded.
//!
//! tonic allocates the length that a message announces and decodes every element before anything
//! counts them. So messages are received here first and handed to tonic only when they are
//! complete and charged for what decoding them takes.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;
use windlass::ErrorKind;
use windlass::remote::MESSAGE_BYTES_MAX;

use super::weight::{self, Weights};
use crate::bodies::{BodyBudget, Charge, too_large};
use crate::connections::Origin;
use crate::problem::Problem;

/// What precedes a message: whether it is compressed, and its length in four bytes.
const HEADER_BYTES: usize = 5;

/// The largest message of a method that carries neither payloads nor lists, in bytes.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// The pause before a stream asks again for memory that is not available.
const FULL_PAUSE: Duration = Duration::from_millis(50);

/// The methods whose messages may be large: those that carry payloads, definitions, error texts or
/// lists.
const LARGE: [&str; 10] = [
    "/windlass.v1.ClientService/RegisterWorkflow",
    "/windlass.v1.ClientService/StartRuns",
    "/windlass.v1.ClientService/SignalRun",
    "/windlass.v1.ClientService/SignalKey",
    "/windlass.v1.ClientService/PutSchedule",
    "/windlass.v1.ClientService/DisableSchedules",
    "/windlass.v1.ClientService/ClaimDuties",
    "/windlass.v1.ClientService/RenewDuties",
    "/windlass.v1.ClientService/EndDuty",
    "/windlass.v1.WorkerService/Work",
];

/// Returns the largest message of a method, in bytes.
fn bytes_max(path: &str) -> usize {
    if LARGE.contains(&path) { MESSAGE_BYTES_MAX } else { SMALL_BYTES_MAX }
}

/// The charges of the messages of a stream that tonic has been given, oldest first. The reader of
/// the stream takes one for each message and keeps it while it works on the message.
#[derive(Clone, Default)]
pub(crate) struct Charges(Arc<Mutex<VecDeque<Charge>>>);

impl Charges {
    /// Takes the charge of the oldest message.
    pub(super) fn take(&self) -> Option<Charge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn put(&self, charge: Charge) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(charge);
    }
}

/// Receives the message of a call, and returns the request with the charge to keep until the call
/// is answered. The messages of a stream are received one by one as tonic reads them.
pub(crate) async fn receive(
    request: Request,
    budget: &Arc<BodyBudget>,
    origin: Origin,
) -> Result<(Request, Option<Charge>), Problem> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path();
    let (weights, budget) = (weight::of_method(path), Arc::clone(budget));
    let time_max = budget.time_max;
    let pieces = body.into_data_stream();
    let mut messages = Messages {
        pieces,
        rest: Bytes::new(),
        bytes_max: bytes_max(path),
        weights,
        budget,
        origin,
    };
    if weights.is_some_and(|weights| weights.is_client_streaming) {
        let charges = Charges::default();
        parts.extensions.insert(charges.clone());
        let stream = stream::unfold(Some(messages), move |messages| {
            let charges = charges.clone();
            async move {
                let mut messages = messages?;
                match messages.next(true).await {
                    Ok(None) => None,
                    Ok(Some((message, charge))) => {
                        charges.put(charge);
                        Some((Ok(message), Some(messages)))
                    }
                    Err(problem) => Some((Err(problem.to_grpc()), None)),
                }
            }
        });
        return Ok((Request::from_parts(parts, Body::from_stream(stream)), None));
    }
    let receiving = async {
        let first = messages.next(false).await?;
        match first.is_some() && messages.more().await? {
            true => Err(broken("the call has more than one message")),
            false => Ok(first),
        }
    };
    let received = tokio::time::timeout(time_max, receiving).await;
    let (message, charge) = match received {
        Ok(received) => received?.unzip(),
        Err(_) => return Err(messages.budget.timed_out()),
    };
    let body = message.map_or_else(Body::empty, Body::from);
    Ok((Request::from_parts(parts, body), charge))
}

/// The messages of a body.
struct Messages {
    pieces: BodyDataStream,
    /// What was received beyond the last message.
    rest: Bytes,
    bytes_max: usize,
    weights: Option<Weights>,
    budget: Arc<BodyBudget>,
    origin: Origin,
}

impl Messages {
    /// Receives the next message, with its header, or `None` at the end of the body. If `waits`,
    /// the message has its own time limit from its first byte, and waits within that limit for
    /// memory.
    async fn next(&mut self, waits: bool) -> Result<Option<(Bytes, Charge)>, Problem> {
        if self.rest.is_empty() && !self.more().await? {
            return Ok(None);
        }
        if !waits {
            return self.rest_of(None).await.map(Some);
        }
        let deadline = Instant::now() + self.budget.time_max;
        let received = {
            let receiving = pin!(self.rest_of(Some(deadline)));
            tokio::time::timeout_at(deadline, receiving).await
        };
        received.unwrap_or_else(|_| Err(self.budget.timed_out())).map(Some)
    }

    /// Receives some bytes; returns whether there were any.
    async fn more(&mut self) -> Result<bool, Problem> {
        while self.rest.is_empty() {
            let Some(piece) = self.pieces.next().await else { return Ok(false) };
            self.rest = piece.map_err(|error| broken(&error.to_string()))?;
        }
        Ok(true)
    }

    async fn rest_of(&mut self, deadline: Option<Instant>) -> Result<(Bytes, Charge), Problem> {
        let mut charge = self.budget.begin(self.origin);
        let mut message = Vec::new();
        let mut wanted = HEADER_BYTES;
        loop {
            let piece = self.rest.split_to(self.rest.len().min(wanted - message.len()));
            grow(&mut charge, piece.len(), deadline).await?;
            message.extend_from_slice(&piece);
            if message.len() == HEADER_BYTES && wanted == HEADER_BYTES {
                let length = u32::from_be_bytes([message[1], message[2], message[3], message[4]]);
                let length = length as usize;
                if length > self.bytes_max {
                    return Err(too_large(length, self.bytes_max));
                }
                wanted += length;
            }
            if message.len() == wanted {
                break;
            }
            if !self.more().await? {
                return Err(broken("it ends within a message"));
            }
        }
        // One that is compressed is refused by tonic, undecoded.
        if let (Some(weights), 0) = (self.weights, message[0]) {
            grow(&mut charge, weights.weigh(&message[HEADER_BYTES..])?, deadline).await?;
        }
        Ok((message.into(), charge))
    }
}

/// Charges more bytes. With a deadline, waits until then for others to release memory.
async fn grow(charge: &mut Charge, bytes: usize, deadline: Option<Instant>) -> Result<(), Problem> {
    loop {
        match (charge.grow(bytes), deadline) {
            (Err(_), Some(deadline)) if Instant::now() + FULL_PAUSE < deadline => {
                tokio::time::sleep(FULL_PAUSE).await;
            }
            (grown, _) => return grown.map_err(|problem| problem.exhausted()),
        }
    }
}

fn broken(why: &str) -> Problem {
    let detail = format!("body: {why}");
    Problem::with_status(StatusCode::BAD_REQUEST, ErrorKind::Argument, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::{DescriptorPool, MessageDescriptor};
    use windlass_proto::v1;

    /// Whether a message has a payload, a definition or a list of messages anywhere.
    fn may_be_large(message: &MessageDescriptor, depth: usize) -> bool {
        message.fields().any(|field| {
            let is_payload =
                ["input", "value", "definition", "note", "failed"].contains(&field.name());
            let inner = field.kind().as_message().cloned();
            let within = inner.is_some_and(|inner| {
                field.is_list() || depth < 8 && may_be_large(&inner, depth + 1)
            });
            within || is_payload && !is_filter(message)
        })
    }

    /// The value of a pair of metadata is short.
    fn is_filter(message: &MessageDescriptor) -> bool {
        message.name() == "Pair" || message.is_map_entry()
    }

    #[test]
    fn the_methods_with_large_messages_are_those_with_payloads_or_lists() {
        let pool = DescriptorPool::decode(v1::DESCRIPTORS).expect("our descriptors");
        for service in pool.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                let is_large = LARGE.contains(&path.as_str());
                assert_eq!(is_large, may_be_large(&method.input(), 0), "{path}");
            }
        }
    }
}
