//! Steps whose work writes in a transaction that also records their result.
//!
//! Whether the attempt still holds its task is asked twice: before the work, so that nothing is
//! begun in vain or in another database, and with the record, which keeps it true until the
//! commit. A commit whose answer is lost is looked for until it is known what became of it.

use std::error::Error as StdError;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;
use windlass_core::{Call, Failure, FailureCode, Payload, StepChange, StepKind, StepResult, Wait};

use super::calls::read;
use super::journal::Made;
use super::step::{Policy, Step, Within, after_failure, timed};
use crate::context::Ctx;
use crate::spans;
use crate::store::postgres::fenced::sealed::Open;
use crate::store::postgres::fenced::{FIND, Home, LOOK, RECORD, answered};
use crate::store::postgres::transactional::Refused;
use crate::store::postgres::{Transaction, TransactionPool};
use crate::store::{Refusal, StoreError};
use crate::task_error::{TaskError, failure_of, is_hand_back};

/// How soon work is repeated that the database interrupted.
const REPEAT_PAUSE: Duration = Duration::from_secs(1);

/// At this level a statement sees what was committed while it waited for a lock.
const BEGIN_TO_FIND: &str = "begin isolation level read committed";

impl<I> Ctx<I> {
    /// Runs `work` in a transaction of a pool and commits what it wrote together with the result
    /// of the step: both are there, or neither is. When the function is run again, this gives the
    /// result without running it.
    ///
    /// The pool must be one of the database in which Windlass keeps its runs. `work` is given the
    /// [transaction](Transaction), and gives it back by dropping it; it is committed if `work`
    /// succeeds and rolled back if it fails. An attempt that lost its task, and does not know it,
    /// commits nothing. What `work` does outside of the transaction is done as by any other
    /// [step](Ctx::step), which this is in all else: retries, timeout, errors.
    ///
    /// A role that does not own the schema needs the right to call three functions of it:
    /// `windlass.look_at_fence`, `windlass.record_step` and `windlass.find_step`.
    ///
    /// ```no_run
    /// # use windlass::{Ctx, TaskError};
    /// async fn reserve(ctx: Ctx<i64>, pool: deadpool_postgres::Pool) -> Result<i64, TaskError> {
    ///     let id = *ctx.input();
    ///     ctx.transaction("reserve", &pool, async move |tx| {
    ///         let sql = "update stock set left_over = left_over - 1 where id = $1
    ///             returning left_over";
    ///         tx.query_one(sql, &[&id]).await?.try_get(0)
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Ctx::step`]. What the database interrupts without `work` seeing it (no connection
    /// is to be had, a serialization failure or a lost connection at the commit) costs no attempt,
    /// and `work` is run again. A pool of another database fails the step, before `work` is run.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, `work` is dropped with it, and rows and result may be committed
    /// or not.
    pub fn transaction<'a, P, F, Fut, T, E>(
        &self,
        name: impl AsRef<str>,
        pool: &P,
        work: F,
    ) -> Step<'a, T>
    where
        P: TransactionPool,
        F: FnOnce(Transaction<P>) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned + Send + 'a,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let made = Made::new(self.inner(), StepKind::Step, name.as_ref());
        let pool = pool.clone();
        Step::new(made, move |made, policy| {
            Box::pin(async move { run(made, policy, pool, work).await })
        })
    }
}

async fn run<P, F, Fut, T, E>(made: Made, policy: Policy, pool: P, work: F) -> Result<T, TaskError>
where
    P: TransactionPool,
    F: FnOnce(Transaction<P>) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    T: Serialize + DeserializeOwned,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    if made.is_done() {
        return read(&made).await;
    }
    made.gate().await;
    let (failures, due) = made.open();
    if due.is_some_and(|due| due > made.attempt.claimed.at) {
        made.wait(None, false).await;
    }
    let busy = made.work();
    let held = Claim::of(&made);
    match held.run(&made, &policy, failures, &pool, work).await {
        End::Recorded => {}
        End::HandBack => {
            drop(busy);
            made.hand_back().await
        }
        End::Lost(refusal) => made.attempt.stop(refusal).await,
        End::Interrupted(failure) => {
            drop(busy);
            let (failure, wait) = (Some(failure), Wait::For(REPEAT_PAUSE));
            made.wait_parked(StepChange::Open { failures, failure, wait }).await
        }
        End::Failed(failure) => match after_failure(&made, &policy, failures, failure) {
            Ok(result) => made.finish(result).await,
            Err(again) => {
                drop(busy);
                made.wait_parked(again).await
            }
        },
    }
    drop(busy);
    read(&made).await
}

/// How a try of the work ended.
enum End {
    /// Rows and result are there.
    Recorded,
    /// The work gave the task back.
    HandBack,
    /// The task is not this attempt's any more.
    Lost(Refusal),
    /// The database rolled it back, for no fault of the work's.
    Interrupted(Failure),
    Failed(Failure),
}

/// What an attempt holds, in the words of the statements.
struct Claim {
    run: String,
    place: String,
    fence: String,
    call: String,
}

impl Claim {
    fn of(made: &Made) -> Self {
        let claimed = &made.attempt.claimed;
        let Call(call) = made.call;
        Claim {
            run: claimed.task.run.to_string(),
            place: claimed.task.index.0.to_string(),
            fence: claimed.fence.0.to_string(),
            call: call.to_string(),
        }
    }

    /// Runs the work once.
    async fn run<P, F, Fut, T, E>(
        &self,
        made: &Made,
        policy: &Policy,
        failures: u32,
        pool: &P,
        work: F,
    ) -> End
    where
        P: TransactionPool,
        F: FnOnce(Transaction<P>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Serialize,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let home = Home::<P>::new();
        let tried = async {
            let open = match self.open(made, pool).await {
                Ok(open) => open,
                Err(end) => return Ok(Err(end)),
            };
            let transaction = Transaction::new(open, &home);
            Within::new(&made.attempt, made.call).run(|| work(transaction)).await.map(Ok)
        };
        let span = spans::step(made.name.as_str(), made.call.0, failures + 1);
        let worked = timed(policy.timeout, tried).instrument(span.clone()).await;
        spans::end_step(&span, matches!(worked, Ok(Ok(_))));
        let value = match worked {
            Ok(Ok(value)) => made.attempt.payload_limit.encode(&value),
            Ok(Err(end)) => return end,
            // What came home is rolled back when it is dropped.
            Err(error) if is_hand_back(&*error) => return End::HandBack,
            Err(error) => return End::Failed(failure_of(&*error)),
        };
        let value = match value {
            Ok(value) => value,
            Err(error) => {
                let text = format!("result of step {:?} {error}", made.name);
                return End::Failed(Failure::new(FailureCode::Payload, text).permanent());
            }
        };
        let Some(open) = home.take() else {
            let text = format!("the work of step {:?} keeps its transaction", made.name);
            return End::Failed(Failure::new(FailureCode::Error, text).permanent());
        };
        let number = made.number();
        let end = self.commit::<P>(made, pool, open, number, &value).await;
        let is_recorded = matches!(end, End::Recorded);
        made.answer(number, is_recorded.then_some(StepResult::Value(value)));
        end
    }

    /// Begins a transaction in the database of the run.
    async fn open<P: TransactionPool>(&self, made: &Made, pool: &P) -> Result<P::Open, End> {
        let foreign = || {
            let text = format!(
                "the pool of step {:?} is not one of the database that run {} is in: a \
                 transaction needs Windlass on PostgreSQL, and its own database",
                made.name, self.run
            );
            End::Failed(Failure::new(FailureCode::Error, text).permanent())
        };
        let interrupted = |refused: Refused| match refused.is_foreign() {
            true => foreign(),
            false => self.failed(made, refused),
        };
        let mut open = answered(pool.begin("begin")).await.map_err(interrupted)?;
        let params = [self.run.as_str(), &self.place, &self.fence];
        match answered(open.ask(LOOK, &params)).await.map_err(interrupted)?.as_str() {
            "held" => Ok(open),
            "lost" => Err(End::Lost(Refusal::LeaseLost)),
            _ => Err(foreign()),
        }
    }

    /// Records the result and commits.
    async fn commit<P: TransactionPool>(
        &self,
        made: &Made,
        pool: &P,
        mut open: P::Open,
        number: u32,
        value: &Payload,
    ) -> End {
        let _waiting = made.attempt.wait_for_store();
        let number = number.to_string();
        let (task, keyring) = (made.attempt.claimed.task, made.attempt.keyring.as_ref());
        let sealed = keyring.map(|keyring| keyring.sealed_step(task, made.call, value));
        let value = sealed.as_ref().unwrap_or(value);
        let params = [
            self.run.as_str(),
            &self.place,
            &self.fence,
            &self.call,
            &number,
            made.kind().word(),
            made.name.as_str(),
            value.as_str(),
        ];
        match answered(open.ask(RECORD, &params)).await {
            Ok(_) => {}
            Err(refused) => {
                return match refused.state() {
                    "WL006" => End::Lost(Refusal::LeaseLost),
                    "WL005" => End::Lost(Refusal::Invalid),
                    _ => self.failed(made, refused),
                };
            }
        }
        let Err(refused) = answered(open.commit()).await else { return End::Recorded };
        // An error is an answer, and may come after the commit all the same: from a server that
        // is shut down, say.
        let question = || async {
            self.find(pool).await.map_err(|refused| match refused.state() {
                // A right that is missing is not there the next time either.
                state @ ("42501" | "42883" | "3F000") => {
                    StoreError::Conflict(format!("windlass.find_step ({state}): {refused}"))
                }
                _ => StoreError::Unavailable(refused.to_string()),
            })
        };
        match made.attempt.insist(question).await.as_str() {
            "recorded" => End::Recorded,
            "open" => self.failed(made, refused),
            _ => End::Lost(Refusal::LeaseLost),
        }
    }

    /// What became of a transaction whose end is not known.
    async fn find<P: TransactionPool>(&self, pool: &P) -> Result<String, Refused> {
        let params = [self.run.as_str(), &self.place, &self.fence, &self.call];
        let mut open = answered(pool.begin(BEGIN_TO_FIND)).await?;
        answered(open.ask(FIND, &params)).await
    }

    /// What follows when the database refused something of the engine's.
    fn failed(&self, made: &Made, refused: Refused) -> End {
        let text = format!("the transaction of step {:?} failed: {refused}", made.name);
        let failure = Failure::new(FailureCode::Error, text);
        match refused.is_interruption() {
            true => End::Interrupted(failure),
            false => End::Failed(failure),
        }
    }
}
