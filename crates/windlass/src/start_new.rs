//! Starts by those who have no definition: of workflows that the store knows.

use crate::engine::Windlass;
use crate::error::{Error, ErrorKind};
use crate::store::{NewRun, Started, StoreError, batch_len};

impl Windlass {
    /// Starts a run of a workflow that the store knows, for servers whose callers only say its
    /// name. One without a key and with an id from [`new_run_id`](Windlass::new_run_id) goes
    /// together with others that come at the same time, if `is_fresh` says that it is so.
    ///
    /// ```
    /// # use windlass::store::NewRun;
    /// # use windlass::{TaskError, Windlass, Workflow};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut mail = Workflow::<()>::builder("mail");
    /// mail.task("send").run(async |_| Ok::<_, TaskError>(()));
    /// let mail = mail.build()?;
    /// let windlass = Windlass::memory();
    /// windlass.start(&mail, ()).await?;
    ///
    /// let run = NewRun {
    ///     id: windlass.new_run_id(),
    ///     workflow: windlass::WorkflowName::new("mail")?,
    ///     version: windlass::Version::FIRST,
    ///     tenant: Default::default(),
    ///     input: Default::default(),
    ///     key: None,
    ///     delay: Default::default(),
    ///     priority: Default::default(),
    ///     metadata: Default::default(),
    /// };
    /// assert!(windlass.start_new(run.clone(), true).await?.is_new);
    /// assert!(!windlass.start_new(run, false).await?.is_new);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if nobody has made the workflow known, [`ErrorKind::Conflict`] if
    /// its id or key is that of another run.
    pub async fn start_new(&self, run: NewRun, is_fresh: bool) -> Result<Started, Error> {
        let store = self.store();
        // One that may have to wait for a transaction of others is not to let anyone wait along.
        if is_fresh && run.key.is_none() && store.gathers_starts() {
            let started = self.starter.start(store, run).await?;
            self.note_start(&started);
            return Ok(started);
        }
        let unanswered = || Error::new(ErrorKind::Corrupt, "the store left a start unanswered");
        self.start_all_new(vec![run]).await?.pop().ok_or_else(unanswered)?.map_err(Error::from)
    }

    /// Starts runs of workflows that the store knows, in few operations. Each is judged alone:
    /// the answers are in the order of the starts.
    ///
    /// # Errors
    ///
    /// An error of the store that leaves the outcomes unknown, those of earlier operations
    /// included: repeat the starts with the same keys or ids.
    pub async fn start_all_new(
        &self,
        mut runs: Vec<NewRun>,
    ) -> Result<Vec<Result<Started, StoreError>>, Error> {
        let mut answers = Vec::with_capacity(runs.len());
        while !runs.is_empty() {
            let bytes = runs.iter().map(|run| run.input.as_str().len());
            let rest = runs.split_off(batch_len(bytes, crate::store::BATCH_MAX));
            let batch = std::mem::replace(&mut runs, rest);
            answers.extend(self.store().start_runs(batch).await?);
        }
        answers.iter().flatten().for_each(|started| self.note_start(started));
        Ok(answers)
    }
}
