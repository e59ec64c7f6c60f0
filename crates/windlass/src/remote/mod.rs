//! Windlass through a server: the store of a process that has no database.
//!
//! [`RemoteStore`] says every verb over gRPC. Nothing is decided here, and nothing is kept but
//! what is needed to say it again to the next server.

use std::fmt;

use tonic::transport::Channel;

/// A store behind a server.
pub struct RemoteStore {
    /// Connections that are made when they are needed, and again when they are lost.
    pub(crate) channel: Channel,
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore").finish_non_exhaustive()
    }
}
