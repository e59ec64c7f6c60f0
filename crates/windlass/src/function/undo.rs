//! Undoing the steps of a run that did not succeed.
//!
//! What undoes a step is code of the function, so the function is run again as far as its
//! record goes, and says on its way how each of its steps is undone. It does nothing else: no
//! call that has no result is begun. Then the steps are undone, the last one first, as steps of
//! the run that undoes: each once, whatever crashes in between.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use windlass_core::{
    Call, Failure, FailureCode, Outcome, Payload, RetryPolicy, StepKind, StepName, StepRecord,
};

use super::calls::{BoxFuture, refused};
use super::driver::Driven;
use super::journal::{Journal, Made};
use super::step::{Policy, Within, run};
use crate::context::Attempt;
use crate::planted::PlantedBug;
use crate::store::Claimed;
use crate::task_error::failure_of;
use crate::workflow::{Handler, Registration};

/// What undoes a step, given its result.
pub(super) type UndoWork =
    Box<dyn FnOnce(Payload) -> BoxFuture<'static, Result<(), BoxError>> + Send>;

type BoxError = Box<dyn StdError + Send + Sync>;

/// A step that is to be undone, and how.
pub(super) struct Undo {
    pub(super) call: Call,
    pub(super) name: StepName,
    pub(super) value: Payload,
    pub(super) work: UndoWork,
    pub(super) retry: RetryPolicy,
}

impl fmt::Debug for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Undo").field("call", &self.call).field("name", &self.name).finish()
    }
}

/// Random numbers of what undoes a call are others than those of the call itself.
const UNDO_CALLS: u32 = 1 << 31;

/// The handler of the task that undoes runs of a workflow.
pub(crate) fn undo_handler(of: Registration) -> Handler {
    Arc::new(move |attempt| {
        let of = of.clone();
        Box::pin(async move {
            match undo_all(&attempt, &of).await {
                Ok(()) => Outcome::Returned(Payload::default()),
                Err(failure) => Outcome::Failed(failure),
            }
        })
    })
}

async fn undo_all(attempt: &Arc<Attempt>, of: &Registration) -> Result<(), Failure> {
    let mut tasks = attempt.read_undo().await;
    let order = of.definition.sorted();
    let place = |task: &Claimed| order.iter().position(|index| *index == task.task.index);
    tasks.sort_by_key(|task| std::cmp::Reverse(place(task)));
    for task in tasks {
        let handler = of.handlers.get(task.task.index.as_usize()).and_then(Option::as_ref);
        let handler = handler.ok_or_else(|| {
            let (run, name) = (task.task.run, &task.spec.name);
            let text = format!("run {run} has steps of task {name:?}, which has no handler");
            Failure::new(FailureCode::Divergence, text)
        })?;
        let replayed = Arc::new(attempt.replay(task));
        let undos = Driven::new(handler(Arc::clone(&replayed)), Arc::clone(&replayed));
        let mut undos = undos.collect().await?;
        if !attempt.planted.has(PlantedBug::UndoInOrder) {
            undos.reverse();
        }
        for undo in undos {
            undo_one(attempt, &replayed, undo).await?;
        }
    }
    Ok(())
}

async fn undo_one(
    attempt: &Arc<Attempt>,
    replayed: &Arc<Attempt>,
    undo: Undo,
) -> Result<(), Failure> {
    let Undo { call, name, value, work, retry } = undo;
    let what = format!(
        "step {name:?} of task {:?} of run {} was not undone",
        replayed.claimed.spec.name, replayed.claimed.task.run
    );
    let told = |error: crate::TaskError| {
        let Failure { code, message, .. } = failure_of(&error);
        Failure::new(code, format!("{what}: {message}")).permanent()
    };
    let made = Made::new(attempt, StepKind::Step, name.as_str());
    let made = made.map_err(|error| told(refused(error)))?;
    let within = Within::new(replayed, Call(call.0 | UNDO_CALLS));
    let policy = Policy { retry, timeout: None };
    run(made, policy, || within.run(|| work(value))).await.map_err(told)
}

impl Journal {
    /// A journal that lets its function go as far as its record goes, and no further.
    pub(crate) fn replay(records: &[StepRecord]) -> Self {
        let journal = Journal::new(records);
        journal.state().undos = Some(Default::default());
        journal
    }

    /// What undoes the steps in the record, in the order of their results, if the function has
    /// said it of all; otherwise the failure that says of which it did not.
    pub(super) fn take_undos(&self, attempt: &Attempt) -> Result<Vec<Undo>, Failure> {
        let mut state = self.state();
        let undos = state.undos.take().unwrap_or_default();
        let is_missing = |record: &&StepRecord| {
            record.is_undoable() && record.number().is_some_and(|one| !undos.contains_key(&one))
        };
        match state.known.values().find(is_missing) {
            None => Ok(undos.into_values().collect()),
            Some(StepRecord { call, name, .. }) => {
                let (run, task) = (attempt.claimed.task.run, &attempt.claimed.spec.name);
                let text = format!(
                    "call {call} of task {task:?} of run {run} is step {name:?} that can be \
                     undone in its record, and the code does not say how"
                );
                Err(Failure::new(FailureCode::Divergence, text))
            }
        }
    }

    /// Whether it is such a journal.
    #[cfg(feature = "testing")]
    pub(crate) fn is_undoing(&self) -> bool {
        self.state().undos.is_some()
    }

    /// Whether the function knows all results that are in the record.
    pub(super) fn is_replayed(&self) -> bool {
        let state = self.state();
        state.is_replayed() && state.results.is_empty()
    }
}

impl Made {
    /// Notes what undoes it, if that is what the function is run for.
    pub(super) fn keep_undo(&self, work: UndoWork, retry: RetryPolicy) {
        let Some((number, value)) = self.undoable() else { return };
        let (call, name) = (self.call, self.name.clone());
        if let Some(undos) = &mut self.attempt.journal.state().undos {
            undos.insert(number, Undo { call, name, value, work, retry });
        }
    }
}
