//! Tasks that are too large to be told to anyone.

use std::sync::Arc;

use prost::Message as _;
use windlass::remote::MESSAGE_BYTES_MAX;
use windlass::store::{Claimed, Completion, Store};
use windlass::wire::{v1, write_tasks};
use windlass_core::{Decision, Failure, FailureCode};

/// The most bytes of a task, beside which there is room for its specification.
const TASK_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (1 << 20);

/// What a worker is told of the tasks it claimed. One that fits into no message would be claimed
/// again and again and told to nobody: it fails, saying so.
pub(super) async fn tell_tasks(store: &Arc<dyn Store>, claimed: &[Claimed]) -> v1::Tasks {
    let mut message = write_tasks(claimed);
    let mut too_large = Vec::new();
    let mut places = claimed.iter();
    message.tasks.retain(|task| {
        let (claimed, bytes) = (places.next(), task.encoded_len());
        if bytes > TASK_BYTES_MAX {
            too_large.extend(claimed.map(|claimed| failed(claimed, bytes)));
        }
        bytes <= TASK_BYTES_MAX
    });
    if !too_large.is_empty() {
        // Otherwise it is claimed once more when its lease has run out.
        if let Err(error) = store.finish(too_large).await {
            tracing::warn!(%error, "tasks too large to be told cannot be failed");
        }
    }
    message
}

fn failed(claimed: &Claimed, bytes: usize) -> Completion {
    let text = format!(
        "with its input, the outputs of its parents and its steps the task has {bytes} bytes, more \
         than the {TASK_BYTES_MAX} that a server can tell a worker"
    );
    let failure = Failure::new(FailureCode::Payload, text).permanent();
    let Claimed { task, fence, .. } = *claimed;
    Completion { task, fence, decision: Decision::Fail(failure) }
}
