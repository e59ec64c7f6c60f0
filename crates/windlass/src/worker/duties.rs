//! Duties of programs that a worker's process does.

use std::future::Future;
use std::time::Duration;

use super::WorkerBuilder;
use crate::duties::{self, DutyCtx, OwnDuty, OwnSettings};

impl WorkerBuilder {
    /// Lets the worker's process do a duty of its program: a handler that is called once per
    /// interval, by one of all processes that declare it. The first one that asks once it is due
    /// does it, under a lease that it renews; if it dies, another begins it anew when the lease is
    /// over. A duty that is new is due at once, and then at whole multiples of its interval behind
    /// that: times that pass while its handler runs, or while no process is there, are left out.
    /// An error or a panic is written down, and the next time it is tried again.
    ///
    /// The interval is from one second to ten years. If processes declare different ones, the
    /// newest declaration holds. Workers do such duties also with
    /// [`duties`](WorkerBuilder::duties)`(None)`, and the lease is as long as
    /// [`leader_ttl`](WorkerBuilder::leader_ttl). When the worker drains, handlers are
    /// [told](crate::DutyCtx::cancelled) and have the grace period to end.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use windlass::{Ctx, Windlass, Workflow};
    /// use std::time::Duration;
    /// use windlass::{DutyCtx, TaskError};
    ///
    /// # let mut mail = Workflow::<()>::builder("mail");
    /// # mail.task("send").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    /// # let mail = mail.build()?;
    /// # let windlass = Windlass::memory();
    /// let worker = windlass
    ///     .worker()
    ///     .register(&mail)
    ///     .duty("sweep-uploads", Duration::from_secs(3_600), async |ctx: DutyCtx| {
    ///         println!("{} for {}, term {}", ctx.name(), ctx.nominal(), ctx.term());
    ///         Ok::<(), TaskError>(())
    ///     })
    ///     .spawn()?;
    /// # worker.drain().await?;
    /// # Ok(()) }
    /// ```
    pub fn duty<F, Fut, E>(mut self, name: impl Into<String>, every: Duration, handler: F) -> Self
    where
        F: Fn(DutyCtx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.own_duties.push(OwnDuty::new(name, every, handler));
        self
    }

    pub(super) fn own_settings(&self) -> OwnSettings {
        OwnSettings {
            ttl: self.ttl(),
            grace: self.config.grace,
            spread_max: if self.is_led { duties::SPREAD_MAX } else { Duration::ZERO },
            // Other numbers than the worker's own, and than those of its background duties.
            seed: self.config.seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1),
        }
    }
}
