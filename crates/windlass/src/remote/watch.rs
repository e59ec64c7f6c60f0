//! Hints of the server that runs have ended.
//!
//! While someone listens, one call is open for all of them. A call that breaks is made again; what
//! was missed meanwhile is made up for by a hint of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use windlass_proto::v1;

use super::client;
use super::doors::Doors;
use crate::backoff::Backoff;
use crate::store::{HintSender, Hints};

/// How often it is looked whether anyone still listens.
const LISTENERS_LOOK: Duration = Duration::from_secs(5);

/// Who listens, and the task that listens for them.
#[derive(Default)]
pub(super) struct Watch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    hints: HintSender,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl Watch {
    /// The hints from now on. Outside a tokio runtime there are none.
    pub(super) fn subscribe(&self, doors: &Doors) -> Hints {
        let mut listening = self.0.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let hints = self.0.hints.subscribe();
        let is_at_work = listening.as_ref().is_some_and(|task| !task.is_finished());
        if !is_at_work && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let listen = Arc::clone(&self.0).listen(doors.clone());
            *listening = Some(runtime.spawn(listen));
        }
        hints
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut listening = self.0.listening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = listening.take() {
            task.abort();
        }
    }
}

impl Shared {
    async fn listen(self: Arc<Self>, doors: Doors) {
        let mut backoff = Backoff::default();
        loop {
            tokio::select! {
                biased;
                () = self.nobody() => {}
                () = self.pass_on(&doors, &mut backoff) => {}
            }
            if self.has_ended() {
                return;
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    /// Passes hints on until the call breaks.
    async fn pass_on(&self, doors: &Doors, backoff: &mut Backoff) {
        let (door, way) = doors.current();
        let call = client(way).watch_runs(v1::WatchRunsRequest {}).await;
        let Ok(mut hints) = call.map(tonic::Response::into_inner) else {
            doors.turn_from(door);
            return;
        };
        // What ended before the server listened is not hinted at.
        self.hints.send();
        while let Ok(Some(v1::RunHint {})) = hints.message().await {
            backoff.reset();
            self.hints.send();
        }
    }

    /// Waits until nobody listens any more.
    async fn nobody(&self) {
        while self.hints.is_heard() {
            tokio::time::sleep(LISTENERS_LOOK).await;
        }
    }

    /// Whether there is nobody to listen for: whoever comes next begins anew.
    fn has_ended(&self) -> bool {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = !self.hints.is_heard();
        if has_ended {
            *listening = None;
        }
        has_ended
    }
}
