//! Workflows that the store knows, for whoever has not built them.

use windlass_core::Payload;

use crate::engine::{Start, Windlass};
use crate::error::Error;
use crate::store::{WorkflowFilter, WorkflowPage, WorkflowRecord};

impl Windlass {
    /// A page of the workflows that the store knows, by name and then the newest version first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does not answer.
    pub async fn workflows(&self, filter: WorkflowFilter) -> Result<WorkflowPage, Error> {
        Ok(self.store().list_workflows(filter).await?)
    }

    /// Begins a run of a workflow that the store knows, as [`start`](Windlass::start) does of one
    /// that this program has built. Whether the input is what its handlers take is not checked.
    ///
    /// With [sealed](Windlass::sealed) values, a workflow with a limit by a field of the input is
    /// refused with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), unless this program has
    /// registered it or its keys say that the field may be
    /// [readable](crate::Keyring::readable): the store does not decide that.
    ///
    /// ```
    /// # use windlass::{Ctx, Payload, TaskError, Windlass, Workflow};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let windlass = Windlass::memory();
    /// # let mut mail = Workflow::<u32>::builder("mail");
    /// # mail.task("send").run(async |_: Ctx<u32>| Ok::<_, TaskError>(()));
    /// # windlass.start(&mail.build()?, 1).await?;
    /// let page = windlass.workflows(Default::default()).await?;
    /// let run = windlass.start_known(&page.workflows[0], Payload::from_json("42")?).tenant("acme").await?;
    /// assert_eq!(run.get().await?.workflow.as_str(), "mail");
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_known(&self, workflow: &WorkflowRecord, input: Payload) -> Start {
        self.start_encoded(&workflow.definition, Ok(input)).of_store()
    }
}
