//! Hooks of programs that a worker's process looks after.

use super::WorkerBuilder;
use crate::hooks::{self, Hook, Pacing};

impl WorkerBuilder {
    /// Lets the worker tell hooks of what goes wrong anywhere in the store, and deliver what they
    /// are told. All workers of a program say the same owner and the same hooks; programs with
    /// another owner have others, which are told on their own.
    ///
    /// One process of the program looks every five seconds, as a
    /// [duty](WorkerBuilder::duty) named `windlass.hooks/<owner>`. Every notification is a run of
    /// the workflow `windlass.hook/<owner>` in the queue `windlass.hooks`, which the worker serves
    /// whatever other [queues](WorkerBuilder::queues) it has. A notification that could not be
    /// delivered for good is a dead letter of it, of which no hook is told. See `docs/hooks.md`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use windlass::{Ctx, TaskError, Windlass, Workflow};
    /// use windlass::hooks::{Hook, Trouble};
    ///
    /// # let mut order = Workflow::<()>::builder("order");
    /// # order.task("charge").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    /// # let order = order.build()?;
    /// # let windlass = Windlass::memory();
    /// let ops = Hook::webhook("ops", "https://hooks.example.com/windlass")
    ///     .secret("a long random text")
    ///     .on(Trouble::RunFailed);
    /// let worker = windlass.worker().register(&order).hooks("shop", [ops]).spawn()?;
    /// # worker.drain().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// A hook that cannot be used, such as one with a URL that is none, is an error of
    /// [`spawn`](WorkerBuilder::spawn).
    pub fn hooks(self, owner: impl AsRef<str>, hooks: impl IntoIterator<Item = Hook>) -> Self {
        self.with_hooks(owner.as_ref(), hooks.into_iter().collect(), Pacing::usual())
    }

    /// The same, but a look every second and few attempts in quick succession, for tests in real
    /// time.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn quick_hooks(self, owner: &str, hooks: impl IntoIterator<Item = Hook>) -> Self {
        self.with_hooks(owner, hooks.into_iter().collect(), Pacing::quick())
    }

    fn with_hooks(mut self, owner: &str, hooks: Vec<Hook>, pacing: Pacing) -> Self {
        match hooks::declare(owner, hooks, pacing) {
            Ok((registration, duty)) => {
                self.own_duties.push(duty);
                self.always_served.push(hooks::QUEUE.to_owned());
                self.registration(registration)
            }
            Err(error) => {
                self.refused.get_or_insert(error);
                self
            }
        }
    }
}
