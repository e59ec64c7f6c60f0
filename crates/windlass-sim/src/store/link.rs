//! What a worker asks, over the link.

use async_trait::async_trait;
use windlass::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Finished, Heartbeat, HeartbeatAnswer, Held, Hello, Hints, Recording, Release, StoreError,
    TakeSignal, Taken, ToUndo, WorkerLink,
};
use windlass::{PayloadLimit, PlantedBug};
use windlass_core::{Call, TaskId, WorkerId};

use super::FaultyStore;
use crate::faults::Verb;

#[async_trait]
impl WorkerLink for FaultyStore {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        let request = (self.site, hello);
        self.deliver(Verb::Join, request, |world, (site, hello)| {
            Box::pin(async move {
                world.store.join(hello.clone()).await?;
                world.note_join(site, &hello);
                Ok(())
            })
        })
        .await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        self.judge_claim();
        self.deliver(Verb::Claim, request, |world, request| {
            Box::pin(async move {
                let claimed = world.store.claim(request.clone()).await?;
                world.note_claim(&request, &claimed);
                Ok(claimed)
            })
        })
        .await
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        let answers = self
            .deliver(Verb::Finish, completions.clone(), |world, completions| {
                Box::pin(async move {
                    let held = |c: &Completion| Held { task: c.task, fence: c.fence };
                    let held: Vec<Held> = completions.iter().map(held).collect();
                    let answers = world.store.finish(completions.clone()).await?;
                    world.note_answers(&held, &answers);
                    world.note_parks(&completions, &answers).await;
                    Ok(answers)
                })
            })
            .await?;
        if self.world.bug == Some(PlantedBug::BackoffInMemory) {
            self.remember_retries(&completions, &answers);
        }
        Ok(answers)
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        self.judge_claim();
        let request = (completions.clone(), next);
        let finished = self
            .deliver(Verb::Finish, request, |world, (completions, next)| {
                Box::pin(async move {
                    let held = |c: &Completion| Held { task: c.task, fence: c.fence };
                    let held: Vec<Held> = completions.iter().map(held).collect();
                    let finish = world.store.finish_and_claim(completions.clone(), next.clone());
                    let finished = finish.await?;
                    world.note_answers(&held, &finished.answers);
                    world.note_parks(&completions, &finished.answers).await;
                    world.note_claim(&next, &finished.claimed);
                    Ok(finished)
                })
            })
            .await?;
        if self.world.bug == Some(PlantedBug::BackoffInMemory) {
            self.remember_retries(&completions, &finished.answers);
        }
        Ok(finished)
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        self.deliver(Verb::Release, releases, |world, releases| {
            Box::pin(async move {
                let held = |r: &Release| Held { task: r.task, fence: r.fence };
                let held: Vec<Held> = releases.iter().map(held).collect();
                let answers = world.store.release(releases).await?;
                world.note_answers(&held, &answers);
                Ok(answers)
            })
        })
        .await
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        self.deliver(Verb::Checkpoint, checkpoints, |world, checkpoints| {
            Box::pin(async move { world.store.checkpoint(checkpoints).await })
        })
        .await
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        self.deliver(Verb::Record, recordings, |world, recordings| {
            Box::pin(async move {
                let answers = world.store.record(recordings.clone()).await?;
                world.note_record(&recordings, &answers).await;
                Ok(answers)
            })
        })
        .await
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        self.deliver(Verb::Record, takes, |world, takes| {
            Box::pin(async move {
                let answers = world.store.take_signals(takes.clone()).await?;
                world.note_takes(&takes, &answers).await;
                Ok(answers)
            })
        })
        .await
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        self.deliver(Verb::Start, starts, |world, starts| {
            Box::pin(async move {
                let answers = world.store.start_children(starts.clone()).await?;
                world.note_children(&starts, &answers);
                Ok(answers)
            })
        })
        .await
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        self.deliver(Verb::Read, held, |world, held| {
            Box::pin(async move { world.store.read_undo(held).await })
        })
        .await
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        self.deliver(Verb::Read, (task, call), |world, (task, call)| {
            Box::pin(async move { world.store.count_children(task, call).await })
        })
        .await
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        self.deliver(Verb::Read, (task, call, after), move |world, (task, call, after)| {
            Box::pin(async move { world.store.list_children(task, call, after, limit).await })
        })
        .await
    }

    async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        self.deliver(Verb::Extend, heartbeat, |world, heartbeat| {
            Box::pin(async move {
                let answer = world.store.extend(heartbeat.clone()).await?;
                world.note_heartbeat(&heartbeat).await;
                Ok(answer)
            })
        })
        .await
    }

    async fn begin_drain(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.deliver(Verb::Leave, worker, |world, worker| {
            Box::pin(async move { world.store.begin_drain(worker).await })
        })
        .await
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.deliver(Verb::Leave, worker, |world, worker| {
            Box::pin(async move {
                world.store.leave(worker).await?;
                world.note_leave(worker);
                Ok(())
            })
        })
        .await
    }

    fn hears_hints(&self) -> bool {
        false
    }

    fn keyring(&self) -> Option<std::sync::Arc<windlass::Keyring>> {
        None
    }

    fn work_hints(&self) -> Hints {
        self.world.relays.work.subscribe()
    }

    fn payload_limit(&self) -> PayloadLimit {
        self.world.store.payload_limit()
    }
}
