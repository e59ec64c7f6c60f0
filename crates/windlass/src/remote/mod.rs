//! Windlass through a server: the store of a process that has no database.
//!
//! [`RemoteStore`] says every verb over gRPC. Nothing is decided here, and nothing is kept but
//! what is needed to say it again to the next server.

mod line;
mod link;

use std::fmt;
use std::sync::Arc;

use tonic::transport::Channel;

use self::line::Line;

/// A store behind a server.
pub struct RemoteStore {
    /// Connections that are made when they are needed, and again when they are lost.
    pub(crate) channel: Channel,
    line: Arc<Line>,
}

impl RemoteStore {
    /// A store over connections to servers.
    pub fn with_channel(channel: Channel) -> Self {
        RemoteStore { line: Line::new(channel.clone()), channel }
    }
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore").finish_non_exhaustive()
    }
}
