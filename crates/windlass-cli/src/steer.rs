//! `windlass cancel` and `windlass retry`: what is done to a run by hand.

use serde_json::json;
use windlass::store::Action;

use crate::choice::RunChoice;
use crate::operator::{About, OperatorArguments};
use crate::session::Session;

/// What `windlass cancel` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    run: RunChoice,

    /// Reason, shown in the events of the run
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    operator: OperatorArguments,
}

/// Cancels a run with all its tasks that have not ended.
pub(crate) async fn cancel(arguments: Cancel, session: &Session) -> anyhow::Result<()> {
    let Cancel { run, reason, operator } = arguments;
    let (windlass, store) = session.connect().await?;
    let run = run.resolve(&windlass).await?;
    // What does not exist is not written down as done.
    let tenant = windlass.run(run).get().await?.tenant;
    let detail = reason.as_ref().map(|reason| json!({ "reason": reason }));
    let about = About::run(tenant, run);
    let noted = operator.note(&windlass, Action::CancelRun, about, detail.as_ref()).await?;
    let done = store.cancel_run(run, reason).await.map_err(windlass::Error::from);
    noted.settle(done).await?;
    let document = || json!({ "run": run.to_string(), "state": "cancelled" });
    session.tell(document, || format!("run {run} is cancelled\n"))
}

/// What `windlass retry` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Retry {
    #[command(flatten)]
    run: RunChoice,

    #[command(flatten)]
    operator: OperatorArguments,
}

/// Begins the next round of a failed run.
pub(crate) async fn retry(arguments: Retry, session: &Session) -> anyhow::Result<()> {
    let Retry { run, operator } = arguments;
    let (windlass, store) = session.connect().await?;
    let run = run.resolve(&windlass).await?;
    let record = windlass.run(run).get().await?;
    let about = About::run(record.tenant, run);
    let noted = operator.note(&windlass, Action::RetryRun, about, None).await?;
    let round = store.retry_run(run, record.round).await.map_err(windlass::Error::from);
    let round = noted.settle(round).await?;
    let document = || json!({ "run": run.to_string(), "round": round });
    session.tell(document, || format!("run {run} is in round {round}\n"))
}
