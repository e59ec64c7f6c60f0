//! What is done once for each key, however often a message comes.
//!
//! The note that it was done is written in the transaction of the work, so both are there or
//! neither is. Whoever comes with the same key while the first is at it waits for the end of its
//! transaction, and then has its result or is the first itself.

use std::error::Error as StdError;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::retry::WAIT_MAX;
use windlass_core::{FailureCode, IdempotencyKey, Payload};

use crate::context::{Attempt, Ctx};
use crate::store::Claimed;
use crate::store::postgres::fenced::sealed::Open;
use crate::store::postgres::fenced::{BEGIN_ONCE, END_ONCE, Home, answered};
use crate::store::postgres::transactional::Refused;
use crate::store::postgres::{Transaction, TransactionPool};
use crate::store::sealed::OncePlace;
use crate::task_error::{TaskError, is_hand_back};

/// How long it is known that a key was handled, if nothing else is said: 30 days.
pub const HANDLED_KEPT: Duration = Duration::from_secs(30 * 86_400);

impl<I> Ctx<I> {
    /// Does `work` once for `key`: in a transaction of the pool, which is committed together with
    /// the note that the key was handled, and with what `work` gave. Whoever comes with the same key
    /// later has that result, and `work` is not run.
    ///
    /// This is for messages that may come twice: a webhook that is sent again, an event that two
    /// producers tell of. The key is the message's own, and belongs to the tenant of the run and to
    /// this task of this workflow; which run it comes with does not matter. If two bring it at the
    /// same time, one does the work and the other waits for it. The note is kept for 30 days, or as
    /// [said](Once::keep); after that the key is as good as new.
    ///
    /// The pool must be one of the database in which Windlass keeps its runs. `work` is given the
    /// [transaction](Transaction), and gives it back by dropping it; if it fails, everything is
    /// rolled back and the key is free. An attempt that lost its task, and does not know it, commits
    /// nothing. In a [durable function](crate::function), call it inside a [step](Ctx::step).
    ///
    /// A role that does not own the schema needs the right to call `windlass.begin_once` and
    /// `windlass.end_once`.
    ///
    /// ```no_run
    /// # use windlass::{Ctx, TaskError};
    /// # #[derive(Clone)] struct Payment { id: String, cents: i64 }
    /// async fn book(ctx: Ctx<Payment>, pool: deadpool_postgres::Pool) -> Result<i64, TaskError> {
    ///     let Payment { id, cents } = ctx.input().clone();
    ///     ctx.once(format!("payment {id}"), &pool, async move |tx| {
    ///         let sql = "update accounts set cents = cents + $1 returning cents";
    ///         tx.query_one(sql, &[&cents]).await?.try_get(0)
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// What `work` fails with. A key that is no key (empty, longer than 400 bytes, or with control
    /// characters), a pool of another database, a result that is too large or that is not of the type
    /// that was recorded: permanent. What the database interrupts (no connection is to be had, a
    /// serialization failure, a lost connection at the commit) gives the task
    /// [back](TaskError::hand_back), which costs no attempt.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, `work` is dropped with it, and rows and note may be committed or
    /// not: both or neither.
    pub fn once<'a, P, F, Fut, T, E>(
        &self,
        key: impl AsRef<str>,
        pool: &P,
        work: F,
    ) -> Once<'a, P, F, T>
    where
        P: TransactionPool,
        F: FnOnce(Transaction<P>) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned + Send + 'a,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Once {
            attempt: Arc::clone(self.inner()),
            key: key.as_ref().to_owned(),
            pool: pool.clone(),
            work,
            keep: HANDLED_KEPT,
            gives: PhantomData,
        }
    }
}

/// Something that is done once for a key, see [`Ctx::once`]. Nothing happens before it is awaited.
#[must_use = "nothing is done before it is awaited"]
pub struct Once<'a, P, F, T> {
    attempt: Arc<Attempt>,
    key: String,
    pool: P,
    work: F,
    keep: Duration,
    gives: PhantomData<fn(&'a ()) -> T>,
}

impl<P, F, T> Once<'_, P, F, T> {
    /// How long it is known that the key was handled, from now; 30 days if nothing is said. Zero
    /// and more than a hundred years are errors.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }
}

impl<P, F, T> std::fmt::Debug for Once<'_, P, F, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Once").field("key", &self.key).field("keep", &self.keep).finish()
    }
}

impl<'a, P, F, Fut, T, E> IntoFuture for Once<'a, P, F, T>
where
    P: TransactionPool,
    F: FnOnce(Transaction<P>) -> Fut + Send + 'a,
    Fut: Future<Output = Result<T, E>> + Send + 'a,
    T: Serialize + DeserializeOwned + Send + 'a,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    type Output = Result<T, TaskError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Once { attempt, key, pool, work, keep, gives: _ } = self;
        Box::pin(async move {
            let claim = Claim::new(attempt, key, keep)?;
            let mut open = match claim.begin(&pool).await? {
                Begun::Handled(value) => return claim.read(&value),
                Begun::First(open) => open,
            };
            let home = Home::<P>::new();
            let value = work(Transaction::new(open, &home)).await.map_err(failed)?;
            let payload = claim.encode(&value)?;
            open = home.take().ok_or_else(|| {
                let text = format!("the work of key {:?} keeps its transaction", claim.key);
                TaskError::new(text).permanent()
            })?;
            match claim.end(&pool, open, &payload).await? {
                None => Ok(value),
                Some(other) => claim.read(&other),
            }
        })
    }
}

/// The error of the work, with its say about further attempts.
fn failed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> TaskError {
    let error = error.into();
    match is_hand_back(&*error) {
        true => TaskError::hand_back(),
        false => TaskError::new(error),
    }
}

/// How it begins.
enum Begun<O> {
    /// The key was handled, with this result.
    Handled(String),
    /// It is to be.
    First(O),
}

/// What an attempt holds and wants to handle, in the words of the statements.
struct Claim {
    attempt: Arc<Attempt>,
    run: String,
    place: String,
    fence: String,
    key: String,
    keep_micros: String,
}

impl Claim {
    fn new(attempt: Arc<Attempt>, key: String, keep: Duration) -> Result<Self, TaskError> {
        let key = IdempotencyKey::new(key).map_err(|error| TaskError::new(error).permanent())?;
        if keep.is_zero() || keep > WAIT_MAX {
            let text =
                format!("key {key:?} is to be kept for {keep:?}, not within 0 to {WAIT_MAX:?}");
            return Err(TaskError::new(text).permanent());
        }
        let claimed = &attempt.claimed;
        Ok(Claim {
            run: claimed.task.run.to_string(),
            place: claimed.task.index.0.to_string(),
            fence: claimed.fence.0.to_string(),
            key: key.as_str().to_owned(),
            keep_micros: keep.as_micros().to_string(),
            attempt,
        })
    }

    /// Begins a transaction in which the key is this attempt's to handle, unless it was handled.
    async fn begin<P: TransactionPool>(&self, pool: &P) -> Result<Begun<P::Open>, TaskError> {
        let params = [self.run.as_str(), &self.place, &self.fence, &self.key, &self.keep_micros];
        loop {
            let _waiting = self.attempt.wait_for_store();
            let mut open =
                answered(pool.begin("begin")).await.map_err(|refused| self.refused(&refused))?;
            match answered(open.ask(BEGIN_ONCE, &params)).await {
                Ok(answer) if answer == "first" => return Ok(Begun::First(open)),
                Ok(answer) if answer == "lost" => return Err(self.lost()),
                Ok(answer) => {
                    let value = answer.strip_prefix('=').map(str::to_owned);
                    return value.map(Begun::Handled).ok_or_else(|| self.foreign());
                }
                // Whoever is at it takes long.
                Err(refused) if refused.state() == "55P03" => {}
                Err(refused) => return Err(self.refused(&refused)),
            }
        }
    }

    /// Notes what the work gave, and commits. Answers what was committed if that is not known to
    /// be this.
    async fn end<P: TransactionPool>(
        &self,
        pool: &P,
        mut open: P::Open,
        value: &Payload,
    ) -> Result<Option<String>, TaskError> {
        let _waiting = self.attempt.wait_for_store();
        let keyring = self.attempt.keyring.as_ref();
        let sealed = keyring.map(|keyring| keyring.sealed_once(self.sealed_at(), value));
        let value = sealed.as_ref().unwrap_or(value);
        let params = [self.run.as_str(), &self.place, &self.fence, &self.key, value.as_str()];
        answered(open.ask(END_ONCE, &params)).await.map_err(|refused| match refused.state() {
            "WL006" => self.lost(),
            _ => self.refused(&refused),
        })?;
        let Err(refused) = answered(open.commit()).await else { return Ok(None) };
        // It may have been committed all the same. Whoever begins again waits for its end.
        match self.begin(pool).await? {
            Begun::Handled(value) => Ok(Some(value)),
            Begun::First(_) => Err(self.refused(&refused)),
        }
    }

    fn encode<T: Serialize>(&self, value: &T) -> Result<Payload, TaskError> {
        let payload = self.attempt.payload_limit.encode(value);
        payload.map_err(|error| self.wrong_payload(format!("{error}")))
    }

    fn read<T: DeserializeOwned>(&self, value: &str) -> Result<T, TaskError> {
        let wrong = |error| self.wrong_payload(format!("was recorded before and {error}"));
        let mut value = Payload::from_json(value).map_err(wrong)?;
        if let Some(keyring) = &self.attempt.keyring {
            value = keyring
                .open_once(self.sealed_at(), &value)
                .map_err(|error| TaskError::new(error).code(FailureCode::Payload.word()))?;
        }
        value.decode().map_err(wrong)
    }

    /// Where the result belongs, as the keys of `windlass.handled` tell it from others.
    fn sealed_at(&self) -> OncePlace<'_> {
        let Claimed { tenant, workflow, spec, .. } = &self.attempt.claimed;
        OncePlace { tenant, workflow, task: &spec.name, key: &self.key }
    }

    fn wrong_payload(&self, problem: String) -> TaskError {
        let text = format!("result of key {:?} {problem}", self.key);
        TaskError::new(text).code(FailureCode::Payload.word()).permanent()
    }

    fn lost(&self) -> TaskError {
        let (task, run) = (&self.attempt.claimed.spec.name, &self.run);
        TaskError::new(format!("task {task:?} of run {run} is not this attempt's any more"))
    }

    fn foreign(&self) -> TaskError {
        let text = format!(
            "the pool of key {:?} is not one of the database that run {} is in: to do something \
             once needs Windlass on PostgreSQL, and its own database",
            self.key, self.run
        );
        TaskError::new(text).permanent()
    }

    /// What follows when the database refused something of the engine's.
    fn refused(&self, refused: &Refused) -> TaskError {
        if refused.is_foreign() {
            return self.foreign();
        }
        if refused.is_interruption() {
            tracing::warn!(task = %self.attempt.claimed.task, key = self.key, %refused, "interrupted");
            return TaskError::hand_back();
        }
        TaskError::new(format!("the transaction of key {:?} failed: {refused}", self.key))
    }
}
