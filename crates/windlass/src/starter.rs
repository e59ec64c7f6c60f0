//! Starts of many callers, in few operations.
//!
//! A start that comes alone leaves at once. Those that come while it is under way gather,
//! and leave together with the next operation: one commit serves them all, and none waits
//! for more than one operation besides its own. Starts that may have to wait for others'
//! transactions, because they have a key, do not come here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::store::{NewRun, Started, Store, StoreError, batch_len};

/// The most starts of one operation.
const GATHER_MAX: usize = 1_000;

type Answer = Result<Started, StoreError>;

/// Gathers the single starts of one engine.
#[derive(Debug, Default)]
pub(crate) struct Starter(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    starts: Vec<(NewRun, oneshot::Sender<Answer>)>,
    is_busy: bool,
}

impl Starter {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a run, together with others that come meanwhile. If this is dropped before the
    /// operation begins, nothing is started.
    pub(crate) async fn start(self: &Arc<Self>, store: &Arc<dyn Store>, run: NewRun) -> Answer {
        let (answer, answered) = oneshot::channel();
        let was_busy = {
            let mut waiting = self.waiting();
            waiting.starts.push((run, answer));
            std::mem::replace(&mut waiting.is_busy, true)
        };
        if !was_busy {
            let busy = Busy { starter: Arc::clone(self), has_left: false };
            tokio::spawn(busy.work(Arc::clone(store)));
        }
        // Nobody answers only if the runtime that worked was shut down.
        answered.await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable("the program gave the start up".to_owned()))
        })
    }
}

/// The one who works for a starter. Dropped in the middle, it leaves whoever waits without
/// an answer, and the place to the next.
struct Busy {
    starter: Arc<Starter>,
    /// Whether it gave up the place by itself, which may be another's by now.
    has_left: bool,
}

impl Busy {
    async fn work(mut self, store: Arc<dyn Store>) {
        while let Some((runs, answers)) = self.next_batch() {
            let answered = start_together(&*store, runs).await;
            for (answer, started) in answers.into_iter().zip(answered) {
                // Whoever does not wait any more need not know.
                let _ = answer.send(started);
            }
        }
    }

    /// What is to be started next; if there is nothing, the place is free.
    fn next_batch(&mut self) -> Option<(Vec<NewRun>, Vec<oneshot::Sender<Answer>>)> {
        let mut waiting = self.starter.waiting();
        waiting.starts.retain(|(_, answer)| !answer.is_closed());
        if waiting.starts.is_empty() {
            waiting.is_busy = false;
            self.has_left = true;
            return None;
        }
        let bytes = waiting.starts.iter().map(|(run, _)| run.input.as_str().len());
        let count = batch_len(bytes, GATHER_MAX);
        Some(waiting.starts.drain(..count).unzip())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if !self.has_left {
            let mut waiting = self.starter.waiting();
            waiting.starts.clear();
            waiting.is_busy = false;
        }
    }
}

/// Starts runs in one operation. If that is refused as a whole, something in it is to
/// blame, which must not keep the others back: then each alone.
async fn start_together(store: &dyn Store, runs: Vec<NewRun>) -> Vec<Answer> {
    let count = runs.len();
    let error = match store.start_runs(runs.clone()).await {
        Ok(answers) if answers.len() == count => return answers,
        Ok(answers) => StoreError::Unavailable(format!("{} answers to {count}", answers.len())),
        Err(error) => error,
    };
    if count == 1 || error.is_retryable() {
        return vec![Err(error); count];
    }
    let mut answers = Vec::with_capacity(count);
    for run in runs {
        let alone = store.start_runs(vec![run]).await;
        let answer = alone.map(|mut answers| answers.pop());
        answers.push(match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => Err(StoreError::Unavailable("no answer".to_owned())),
            Err(error) => Err(error),
        });
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use futures_util::FutureExt;
    use windlass_core::{Payload, RunId, Tenant, Version, WorkflowName};

    use crate::store::MemoryStore;
    use crate::{Ctx, TaskError, Workflow};

    fn run(number: u128) -> NewRun {
        NewRun {
            id: RunId::from_uuid(uuid::Uuid::from_u128(number)),
            workflow: WorkflowName::new("w").unwrap(),
            version: Version::FIRST,
            tenant: Tenant::default(),
            input: Payload::from_json("null").unwrap(),
            key: None,
            delay: Duration::ZERO,
            priority: Default::default(),
            metadata: Default::default(),
        }
    }

    async fn store() -> Arc<dyn Store> {
        let mut w = Workflow::<()>::builder("w");
        w.task("t").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        store.register(Arc::clone(w.build().unwrap().definition())).await.unwrap();
        store
    }

    #[tokio::test]
    async fn starts_that_come_together_are_answered_each_for_itself() {
        let (store, starter) = (store().await, Arc::new(Starter::default()));
        let mut unknown = run(3);
        unknown.workflow = WorkflowName::new("unknown").unwrap();
        let (one, two, three) = tokio::join!(
            starter.start(&store, run(1)),
            starter.start(&store, run(2)),
            starter.start(&store, unknown),
        );
        assert_eq!(one.unwrap().run, run(1).id);
        assert_eq!(two.unwrap().run, run(2).id);
        assert!(matches!(three, Err(StoreError::NotFound(_))));
        assert!(!starter.waiting().is_busy);
    }

    #[tokio::test]
    async fn a_start_that_is_given_up_before_it_leaves_starts_nothing() {
        let (store, starter) = (store().await, Arc::new(Starter::default()));
        // On one thread, whoever works gets its turn only when this waits.
        assert!(starter.start(&store, run(1)).now_or_never().is_none());
        starter.start(&store, run(2)).await.unwrap();
        assert!(store.get_run(run(1).id).await.unwrap().is_none());
    }

    #[test]
    fn a_runtime_that_ends_in_the_middle_leaves_the_starter_to_the_next() {
        let starter = Arc::new(Starter::default());
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let first = runtime();
        let store = first.block_on(store());
        let start = {
            let (starter, store) = (Arc::clone(&starter), Arc::clone(&store));
            first.spawn(async move { starter.start(&store, run(1)).await })
        };
        first.block_on(async { tokio::task::yield_now().await });
        drop(first);
        drop(start);
        assert!(runtime().block_on(starter.start(&store, run(2))).is_ok());
    }
}
