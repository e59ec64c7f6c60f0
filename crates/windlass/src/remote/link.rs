//! The verbs of a worker, said to a server.

use std::{iter, mem};

use async_trait::async_trait;
use prost::Message;
use windlass_core::{Call, PayloadLimit, TaskId, WorkerId};

use super::line::mismatch;
use super::{MESSAGE_BYTES_MAX, RemoteStore};
use crate::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Finished, Heartbeat, HeartbeatAnswer, Held, Hello, Hints, Recording, Release, StoreError,
    TakeSignal, Taken, ToUndo, WorkerLink, fitting,
};
use crate::wire::v1::worker_reply::Reply;
use crate::wire::v1::worker_request::Request;
use crate::wire::{
    PART_BYTES_MAX, Wire, read_all, read_answers, read_tasks, read_to_undo, v1, write_all,
};

/// The most bytes of one thing that is said, besides which a message says little more.
const ITEM_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (1 << 20);

/// Whether something can be said in no message.
fn is_large(item: &impl Message) -> bool {
    item.encoded_len() > ITEM_BYTES_MAX
}

impl RemoteStore {
    /// A claim that says all there is to say: it may come on a stream on which the worker has not
    /// been introduced yet.
    fn claim_message(request: &ClaimRequest) -> v1::Claim {
        v1::Claim {
            worker: request.worker.to_string(),
            seq: request.seq.0,
            limit: u32::try_from(request.limit).unwrap_or(u32::MAX),
            wait_us: 0,
            queues: request.queues.iter().map(|queue| queue.as_str().to_owned()).collect(),
            workflows: write_all(&request.handlers),
            is_poll: request.is_poll,
            ending: u32::try_from(request.ending).unwrap_or(u32::MAX),
            tenant: request.tenant.as_ref().map(ToString::to_string).unwrap_or_default(),
        }
    }

    async fn ask_for_answers(&self, request: Request) -> Result<Finished, StoreError> {
        let Reply::Answers(v1::Answers { answers, claimed }) = self.line.ask(request).await? else {
            return Err(mismatch());
        };
        Ok(Finished {
            answers: read_answers(answers)?,
            claimed: match claimed {
                Some(tasks) => read_tasks(tasks)?,
                None => Vec::new(),
            },
        })
    }

    async fn say(&self, request: Request) -> Result<(), StoreError> {
        let Reply::Done(v1::Done {}) = self.line.ask(request).await? else {
            return Err(mismatch());
        };
        Ok(())
    }
}

#[async_trait]
impl WorkerLink for RemoteStore {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        self.line.join(hello.worker, hello.to_wire()).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let claim = Self::claim_message(&request);
        let Reply::Tasks(tasks) = self.line.ask(Request::Claim(claim)).await? else {
            return Err(mismatch());
        };
        Ok(read_tasks(tasks)?)
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        let (results, places) = fitting(write_all(&completions), is_large);
        let results = Request::Results(v1::Results { results, next: None });
        Ok(places.answers(self.ask_for_answers(results).await?.answers))
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        let (results, places) = fitting(write_all(&completions), is_large);
        let next = Some(Self::claim_message(&next));
        let results = Request::Results(v1::Results { results, next });
        let Finished { answers, claimed } = self.ask_for_answers(results).await?;
        Ok(Finished { answers: places.answers(answers), claimed })
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        let releases = v1::Releases { releases: write_all(&releases) };
        Ok(self.ask_for_answers(Request::Releases(releases)).await?.answers)
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        let (checkpoints, places) = fitting(write_all(&checkpoints), is_large);
        let checkpoints = Request::Checkpoints(v1::Checkpoints { checkpoints });
        Ok(places.answers(self.ask_for_answers(checkpoints).await?.answers))
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        let (recordings, places) = fitting(write_all(&recordings), is_large);
        let steps = Request::Steps(v1::Steps { recordings });
        Ok(places.answers(self.ask_for_answers(steps).await?.answers))
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        let takes = v1::TakeSignals { takes: write_all(&takes) };
        let Reply::SignalsTaken(taken) = self.line.ask(Request::TakeSignals(takes)).await? else {
            return Err(mismatch());
        };
        Ok(read_all("taken", taken.taken)?)
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        let starts = v1::StartChildren { starts: write_all(&starts) };
        let Reply::ChildrenStarted(started) = self.line.ask(Request::StartChildren(starts)).await?
        else {
            return Err(mismatch());
        };
        Ok(read_all("children", started.children)?)
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        let question = v1::CountChildren { task: Some(task.to_wire()), call: call.0 };
        let Reply::ChildCount(count) = self.line.ask(Request::CountChildren(question)).await?
        else {
            return Err(mismatch());
        };
        Ok(ChildCount::from_wire(count)?)
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let task = Some(task.to_wire());
        let question =
            v1::ListChildren { task, call: call.0, after, limit, takes_short_pages: true };
        let Reply::Children(children) = self.line.ask(Request::ListChildren(question)).await?
        else {
            return Err(mismatch());
        };
        Ok(read_all("children", children.children)?)
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        let question = v1::ReadUndo { held: Some(held.to_wire()) };
        let Reply::Tasks(tasks) = self.line.ask(Request::ReadUndo(question)).await? else {
            return Err(mismatch());
        };
        Ok(read_to_undo(tasks)?)
    }

    async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        let mut message = heartbeat.to_wire();
        let mut notes = mem::take(&mut message.progress).into_iter().peekable();
        loop {
            let mut bytes = 0;
            let mut fits = |note: &v1::Progress| {
                let is_first = bytes == 0;
                bytes += note.encoded_len();
                is_first || bytes <= PART_BYTES_MAX
            };
            message.progress = iter::from_fn(|| notes.next_if(&mut fits)).collect();
            let Reply::Beat(beat) = self.line.ask(Request::Heartbeat(message.clone())).await?
            else {
                return Err(mismatch());
            };
            // The last answer says all that the ones before it said.
            if notes.peek().is_none() {
                return Ok(HeartbeatAnswer::from_wire(beat)?);
            }
        }
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.say(Request::Drain(v1::Drain { worker: worker.to_string() })).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.say(Request::Leave(v1::Leave { worker: worker.to_string() })).await?;
        self.line.forget(worker);
        Ok(())
    }

    fn keyring(&self) -> Option<std::sync::Arc<crate::store::sealed::Keyring>> {
        None
    }

    fn work_hints(&self) -> Hints {
        self.line.hints()
    }

    fn is_watched(&self) -> bool {
        true
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.line.payload_limit()
    }
}
