//! Drops whoever does not take what it is sent.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream on which a write that makes no progress for a time fails.
pub(super) struct StallGuard<S> {
    stream: S,
    limit: Duration,
    /// When the write that waits has waited for too long.
    until: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> StallGuard<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        StallGuard { stream, limit, until: Box::pin(tokio::time::sleep(limit)), is_waiting: false }
    }

    /// What a write came to, or an error if it came to nothing for too long.
    fn judge<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.until.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.until.as_mut().poll(context));
        let why = format!("nothing was taken for {:?}", self.limit);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(closed, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_takes_fails_and_a_slow_one_does_not() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut guarded = StallGuard::new(ours, Duration::from_secs(10));
        guarded.write_all(b"full").await.unwrap();
        let reading = async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            theirs.read_exact(&mut [0; 4]).await.unwrap();
        };
        let (written, ()) = tokio::join!(guarded.write_all(b"more"), reading);
        written.unwrap();
        let error = guarded.write_all(b"much").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
