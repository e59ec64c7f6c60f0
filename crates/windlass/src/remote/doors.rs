//! The servers that a process may talk to.
//!
//! Any server does for any process: one is used until it is of no use, then the next. Each process
//! has an order of its own, so that those of a server that is gone spread over the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use super::token::Bearer;
use super::trouble::About;

/// How a server is spoken to: by a connection, with what says who asks.
pub(super) type Way = InterceptedService<Channel, Bearer>;

/// Connections to servers, which are made when they are needed and again when they are lost.
#[derive(Clone)]
pub(super) struct Doors(Arc<Inner>);

struct Inner {
    channels: Vec<(Channel, About)>,
    bearer: Bearer,
    current: AtomicUsize,
}

/// One of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Door(usize);

impl Doors {
    /// Of at least one server, in any order.
    pub(super) fn new(mut channels: Vec<(Channel, About)>, bearer: Bearer) -> Self {
        fastrand::shuffle(&mut channels);
        Doors(Arc::new(Inner { channels, bearer, current: AtomicUsize::new(0) }))
    }

    /// Whether there is more than one.
    pub(super) fn has_others(&self) -> bool {
        self.0.channels.len() > 1
    }

    /// How often what says who asks has changed.
    pub(super) fn token_version(&self) -> u64 {
        self.0.bearer.version()
    }

    /// The server that is used.
    pub(super) fn current(&self) -> (Door, Way) {
        let place = self.0.current.load(Ordering::Relaxed);
        let channel = self.0.channels[place].0.clone();
        (Door(place), InterceptedService::new(channel, self.0.bearer.clone()))
    }

    /// What is said of a server.
    pub(super) fn about(&self, Door(place): Door) -> &About {
        &self.0.channels[place].1
    }

    /// A server is of no use: the next one is used, unless someone has turned to it already.
    pub(super) fn turn_from(&self, Door(place): Door) {
        let next = (place + 1) % self.0.channels.len();
        let ordering = Ordering::Relaxed;
        // Whoever was faster has said the same.
        let _ = self.0.current.compare_exchange(place, next, ordering, ordering);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::transport::Endpoint;

    #[tokio::test]
    async fn the_next_server_is_used_when_one_is_gone_and_each_in_its_turn() {
        let channel = || {
            let channel = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
            (channel, About::unknown())
        };
        let doors = Doors::new(vec![channel(), channel(), channel()], Bearer::default());
        let (first, _) = doors.current();
        doors.turn_from(first);
        doors.turn_from(first);
        let (second, _) = doors.current();
        assert_eq!(second, Door((first.0 + 1) % 3), "two who saw it turn once");
        doors.turn_from(second);
        doors.turn_from(doors.current().0);
        assert_eq!(doors.current().0, first);
    }
}
