//! The signals that end a command.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code of a program whose terminal was closed.
pub(crate) const HANGUP: u8 = 129;

/// Ctrl-C, a request to end, and a terminal that was closed. Those that come before
/// they are waited for are kept.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// From now on, none of them ends this process by itself.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one, and answers the exit code of a program that it ended, as shells
    /// count it: 128 and the number of the signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = self.hangup.recv() => HANGUP,
        }
    }
}
