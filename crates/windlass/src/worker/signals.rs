//! A worker that ends as the operating system asks it to.
//!
//! Signals are listened to by a thread of its own: a handler that blocks the threads of the
//! runtime must not keep the process from being told to end.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{WorkerBuilder, WorkerHandle};
use crate::error::{Error, ErrorKind};

/// How long a process may take to end by itself after the second signal.
const END_TIME: Duration = Duration::from_secs(1);

impl WorkerBuilder {
    /// Works until the process is asked to end by SIGTERM or SIGINT (Ctrl-C), then drains
    /// within the [grace period](WorkerBuilder::grace). The last line of a worker's `main`.
    ///
    /// A drain that began otherwise, by [`POST /admin/drain`](WorkerBuilder::health), is not
    /// a signal: the first one that follows changes nothing.
    ///
    /// The second signal ends the worker at once. Handlers are dropped where they are, their
    /// tasks come back when the lease has run out, and the error says how many. If the
    /// process has not ended a second later, because a handler blocks its thread or `main`
    /// has more to do, it is ended with the exit code 128 plus the number of the signal.
    ///
    /// From the call on, the two signals no longer end the process by themselves. Unix only.
    ///
    /// ```no_run
    /// # use windlass::{Ctx, TaskError, Windlass, Workflow};
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut mail = Workflow::<String>::builder("mail");
    ///     mail.task("send").run(async |_: Ctx<String>| Ok::<(), TaskError>(()));
    ///     let mail = mail.build()?;
    ///     let windlass = Windlass::memory();
    ///     windlass.worker().register(&mail).run().await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`spawn`](WorkerBuilder::spawn), what made the worker give up,
    /// [`ErrorKind::Unavailable`] if signals cannot be listened to, and
    /// [`ErrorKind::Interrupted`] after the second one.
    pub async fn run(self) -> Result<(), Error> {
        let draining = CancellationToken::new();
        // Before the worker begins: a signal that comes now must not end it in the middle.
        let signals = Signals::listen(draining.clone()).await?;
        self.spawn_with(draining)?.until(signals).await
    }
}

impl WorkerHandle {
    /// Works until the process is asked to end, as [`WorkerBuilder::run`] does, for a worker
    /// that was spawned already. A signal that comes before the first poll ends the process.
    ///
    /// # Errors
    ///
    /// Those of [`WorkerBuilder::run`] but the ones of the start.
    pub async fn drain_on_signal(self) -> Result<(), Error> {
        let signals = Signals::listen(self.draining.clone()).await?;
        self.until(signals).await
    }

    async fn until(mut self, signals: Signals) -> Result<(), Error> {
        tokio::select! {
            biased;
            ended = &mut self.task => WorkerHandle::result(ended),
            () = signals.second.cancelled() => {
                self.task.abort();
                let left = self.pulse.running();
                let text = format!("a second signal ended the worker; tasks left to the lease: {left}");
                Err(Error::new(ErrorKind::Interrupted, text))
            }
        }
    }
}

/// What the thread that listens has heard.
struct Signals {
    second: CancellationToken,
    /// Dropped before the first signal, nobody needs the thread any more.
    _needed: oneshot::Sender<()>,
}

impl Signals {
    /// Begins to listen; the first signal begins the drain.
    async fn listen(draining: CancellationToken) -> Result<Signals, Error> {
        let second = CancellationToken::new();
        let (needed, not_needed) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let ear = Ear { draining, second: second.clone(), not_needed };
        let spawned =
            thread::Builder::new().name("windlass-signals".into()).spawn(move || ear.run(ready));
        let refused = |error: io::Error| {
            let text = format!("cannot listen to SIGTERM and SIGINT: {error}");
            Error::new(ErrorKind::Unavailable, text)
        };
        spawned.map_err(refused)?;
        let died = || io::Error::other("its thread has ended");
        is_ready.await.unwrap_or_else(|_| Err(died())).map_err(refused)?;
        Ok(Signals { second, _needed: needed })
    }
}

/// The side of the thread.
struct Ear {
    draining: CancellationToken,
    second: CancellationToken,
    not_needed: oneshot::Receiver<()>,
}

impl Ear {
    fn run(self, ready: oneshot::Sender<io::Result<()>>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        if let Some(exit_code) = runtime.block_on(self.hear(ready)) {
            thread::sleep(END_TIME);
            tracing::error!(exit_code, "the process does not end by itself");
            std::process::exit(exit_code);
        }
    }

    /// Listens until nobody needs it, or to the second signal, whose exit code it answers.
    async fn hear(self, ready: oneshot::Sender<io::Result<()>>) -> Option<i32> {
        let mut pair = match Pair::new() {
            Ok(pair) => pair,
            Err(error) => {
                // Whoever does not wait for it any more does not need it either.
                let _ = ready.send(Err(error));
                return None;
            }
        };
        ready.send(Ok(())).ok()?;
        tokio::select! {
            biased;
            exit_code = pair.next() => {
                tracing::info!(exit_code, "a signal: the worker drains");
                self.draining.cancel();
            }
            _ = self.not_needed => return None,
        }
        // The process was told to end; from now on it must be possible to insist, also when
        // the worker has ended and something else has not.
        let exit_code = pair.next().await;
        tracing::warn!(exit_code, "a second signal: the worker ends at once");
        self.second.cancel();
        Some(exit_code)
    }
}

struct Pair {
    terminate: Signal,
    interrupt: Signal,
}

impl Pair {
    fn new() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Pair { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one, and answers the exit code of a program that it ended, as shells count
    /// it. Cancel safe.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => 143,
            _ = self.interrupt.recv() => 130,
        }
    }
}
