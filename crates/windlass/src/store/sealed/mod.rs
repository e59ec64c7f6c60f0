//! A store whose values are sealed before they leave the process.
//!
//! [`SealedStore`] is a store around another one. Whatever a program hands it (inputs, outputs,
//! results of steps, signals, checkpoints, notes, texts of failures and reasons) is encrypted with
//! a key of its [`Keyring`] before the store within sees it, and opened when it comes back. The
//! store within may be in a database, in memory or behind a server: none of them has a key, and
//! none has to know.
//!
//! `envelope` says what a sealed value looks like, `place` what is sealed into it besides,
//! `sealing` what of a request is sealed and `opening` what of an answer is opened. What stays
//! readable, and why, is in `docs/encryption.md`. This module decides nothing about runs.

mod duties;
mod envelope;
mod keyring;
mod link;
mod opening;
mod people;
mod place;
mod schedules;
mod sealing;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_core::{
    Definition, Failure, PayloadLimit, RunId, StepResult, StepState, TaskId, Tenant, Version,
    WorkflowName,
};

pub use envelope::describe;
pub use keyring::{
    KEY_BYTES, KEY_ID_BYTES_MAX, KEYS_FILE_VARIABLE, KEYS_MAX, KEYS_VARIABLE, Keyring, READABLE_MAX,
};
#[cfg(feature = "postgres")]
pub(crate) use sealing::OncePlace;
pub(crate) use sealing::fields_of;

use opening::Closed;

use super::{NewRun, PAGE_MAX, Started, Store, StoreError, WorkflowCursor, WorkflowFilter};
use crate::engine::Windlass;

/// What a sealed payload has besides the plain text, before it is written in base64, and the JSON
/// around it, with room for the fields that limits read.
const OVERHEAD_BYTES: usize = 512;

/// The most runs whose tenants are remembered.
const TENANTS_MAX: usize = 10_000;

/// A store around another one, which sees sealed values only.
///
/// It keeps every promise of a store: repeated starts and records are known again, because the
/// same value at the same place is sealed to the same bytes. A task whose values cannot be opened
/// fails with the code `payload` and a text that names the key, and is not handed to a handler.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use windlass::{Ctx, Keyring, TaskError, Windlass, Workflow};
///
/// let mut greet = Workflow::<String>::builder("greet");
/// let hello = greet.task("hello").run(async |ctx: Ctx<String>| {
///     Ok::<_, TaskError>(format!("hello, {}", ctx.input()))
/// });
/// let greet = greet.build()?;
///
/// let within = Windlass::memory();
/// let windlass = within.clone().sealed(Keyring::parse(&Keyring::fresh_line("k1")?)?);
/// let worker = windlass.worker().register(&greet).spawn()?;
/// let run = windlass.start(&greet, "sailor".to_owned()).await?;
/// run.wait().await?;
/// assert_eq!(run.output(&hello).await?, "hello, sailor");
/// let stored = within.run(run.id()).get().await?;
/// assert!(stored.input.expect("a run has one").as_str().starts_with(r#"{"wl-sealed":"1.k1."#));
/// worker.drain().await?;
/// # Ok(()) }
/// ```
pub struct SealedStore {
    inner: Arc<dyn Store>,
    keys: Arc<Keyring>,
    known: Mutex<Known>,
    is_for_people: bool,
}

/// What is remembered of what went through.
#[derive(Default)]
struct Known {
    /// The fields of inputs that the limits of workflows read.
    fields: HashMap<(WorkflowName, Version), Arc<[String]>>,
    /// Whose runs have taken signals to keys.
    tenants: HashMap<RunId, Tenant>,
}

impl Windlass {
    /// The same engine, whose values are sealed with these keys before they leave the process:
    /// inputs, outputs, results of steps, signals, checkpoints, notes on progress, and the texts of
    /// failures and reasons. Neither the database nor a server sees them, and log lines and spans
    /// have the codes of failures alone. `docs/encryption.md` says what stays readable.
    ///
    /// All programs that work on the same runs need the keys. See
    /// [`SealedStore`].
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
    /// use windlass::{Keyring, Windlass};
    ///
    /// let keys = Keyring::from_file("/etc/windlass/payload.keys")?;
    /// let windlass = Windlass::connect("postgres://app@db.example.com/app").await?.sealed(keys);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn sealed(self, keys: Keyring) -> Self {
        self.around(|store| Arc::new(SealedStore::new(store, Arc::new(keys))))
    }
}

impl SealedStore {
    /// A store whose values are sealed on their way into `inner`.
    pub fn new(inner: Arc<dyn Store>, keys: Arc<Keyring>) -> Self {
        SealedStore { inner, keys, known: Mutex::default(), is_for_people: false }
    }

    /// The same store for a tool whose users look at runs and steer them. A single run, task or
    /// schedule that cannot be opened is shown as it is stored then, as lists show it: whoever lacks a
    /// key can still see, cancel and retry a run. Otherwise it is an error, since a program goes on
    /// with what it reads. What a worker and its functions are given must open in any case.
    #[must_use]
    pub fn for_people(self) -> Self {
        SealedStore { is_for_people: true, ..self }
    }

    /// What follows for a record of which something could not be opened.
    fn told(&self, opened: Result<(), Closed>) -> Result<(), StoreError> {
        match opened {
            Err(closed) if !self.is_for_people => Err(closed.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what the limits of a workflow read, as this program itself says.
    fn learn(&self, definition: &Definition) -> Arc<[String]> {
        let fields: Arc<[String]> = fields_of(definition).into();
        let key = (definition.name().clone(), definition.version());
        self.known().fields.insert(key, Arc::clone(&fields));
        fields
    }

    /// What the limits of a workflow read; nothing if nobody knows it. What the store says of that is
    /// believed as far as the keyring allows: it could name any field, and read it then.
    async fn fields(
        &self,
        workflow: &WorkflowName,
        version: Version,
    ) -> Result<Arc<[String]>, StoreError> {
        let key = (workflow.clone(), version);
        if let Some(fields) = self.known().fields.get(&key) {
            return Ok(Arc::clone(fields));
        }
        // The newest versions come first: the page begins with the one that is looked for.
        let version_before = Version::new(version.get().saturating_add(1));
        let after =
            version_before.map(|version| WorkflowCursor { name: workflow.clone(), version });
        let filter = WorkflowFilter { name: Some(workflow.clone()), after, limit: 1 };
        let page = self.inner.list_workflows(filter).await?;
        match page.workflows.first() {
            Some(found) if found.definition.version() == version => {
                let told: Arc<[String]> = self.keys.fields_told(&found.definition)?.into();
                // What the program itself has said meanwhile goes before.
                Ok(Arc::clone(self.known().fields.entry(key).or_insert(told)))
            }
            Some(_) | None => Ok(Arc::default()),
        }
    }

    /// Whose run it is.
    async fn tenant_of(&self, run: RunId) -> Result<Option<Tenant>, StoreError> {
        if let Some(tenant) = self.known().tenants.get(&run) {
            return Ok(Some(tenant.clone()));
        }
        let tenant = self.inner.get_run(run).await?.map(|run| run.tenant);
        if let Some(tenant) = &tenant {
            let mut known = self.known();
            if known.tenants.len() >= TENANTS_MAX {
                known.tenants.clear();
            }
            known.tenants.insert(run, tenant.clone());
        }
        Ok(tenant)
    }

    /// The answer to a start that the store within calls another one than that which is there: it
    /// may have been sealed with a key before the first one, or not at all.
    async fn judge_existing(
        &self,
        run: &NewRun,
        fields: &[String],
    ) -> Result<Option<Started>, StoreError> {
        if let Some(mut there) = self.inner.get_run(run.id).await? {
            let is_opened = self.keys.open_run(&mut there).is_ok();
            let is_same = is_opened
                && (&there.workflow, &there.tenant) == (&run.workflow, &run.tenant)
                && there.key == run.key
                && there.input.as_ref() == Some(&run.input);
            if is_same {
                return Ok(Some(Started { run: there.id, is_new: false }));
            }
        }
        for before in self.keys.starts_before(run, fields) {
            if let Some(Ok(started)) = self.inner.start_runs(vec![before]).await?.pop() {
                return Ok(Some(started));
            }
        }
        Ok(None)
    }

    /// What the last call says, as it is stored, that a function fails with: what failed is found
    /// by it when the run is retried.
    async fn failed_call(
        &self,
        task: TaskId,
        failure: &Failure,
    ) -> Result<Option<String>, StoreError> {
        let (mut last, mut after) = (None, None);
        loop {
            let page = self.inner.list_steps(task, after, PAGE_MAX).await?;
            let is_full = page.len() == PAGE_MAX;
            after = page.last().map(|step| step.call);
            for step in page {
                let StepState::Done { number, result: StepResult::Failed(stored) } = step.state
                else {
                    continue;
                };
                let mut plain = stored.clone();
                self.keys.open_failure(task.run, &mut plain);
                let is_sealed = plain.message != stored.message;
                let is_why = plain.code == failure.code && failure.message.contains(&plain.message);
                if is_sealed && is_why && last.as_ref().is_none_or(|(before, _)| *before < number) {
                    last = Some((number, stored.message));
                }
            }
            if !is_full {
                return Ok(last.map(|(_, message)| message));
            }
        }
    }

    /// How much of the limit of the store within is left for plain texts.
    fn limit(&self) -> PayloadLimit {
        let within = self.inner.payload_limit().get();
        let plain = within.saturating_sub(OVERHEAD_BYTES) / 4 * 3;
        let least = windlass_core::payload::PAYLOAD_LIMIT_MIN;
        PayloadLimit::new(plain.max(least)).unwrap_or_default()
    }
}

/// The store within left something out.
fn unanswered() -> StoreError {
    StoreError::Corrupt("the store left a start unanswered".to_owned())
}

impl std::fmt::Debug for SealedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedStore").field("keys", &self.keys).finish_non_exhaustive()
    }
}
