//! The workflow whose runs are notifications, one for each program.

use std::sync::Arc;

use windlass_core::RetryPolicy;

use super::notice::Notice;
use super::{Channel, Checked, QUEUE, WORKFLOW};
use crate::context::Ctx;
use crate::error::Error;
use crate::task_error::TaskError;
use crate::workflow::Workflow;

/// Why something was not delivered.
#[derive(Debug)]
pub(super) enum Undelivered {
    /// Another attempt may help.
    ForNow(String),
    /// No other attempt will.
    ForGood(String),
}

/// Whose runs tell hooks: nobody else's, so that no tenant sees them nor waits for them.
pub(super) const TENANT: &str = "windlass";

pub(super) fn workflow(
    owner: &str,
    hooks: Arc<[Checked]>,
    retry: RetryPolicy,
) -> Result<Workflow<Notice>, Error> {
    let mut workflow = Workflow::<Notice>::builder(format!("{WORKFLOW}{owner}"));
    workflow.task("deliver").queue(QUEUE).retry(retry).run(move |ctx: Ctx<Notice>| {
        let hooks = Arc::clone(&hooks);
        async move { deliver(&ctx, &hooks).await }
    });
    workflow.build()
}

async fn deliver(ctx: &Ctx<Notice>, hooks: &[Checked]) -> Result<(), TaskError> {
    let notice = ctx.input();
    let Some(hook) = hooks.iter().find(|hook| hook.name == notice.hook) else {
        // Another version of the program may have it.
        let text = format!("this worker has no hook {:?}", notice.hook);
        return Err(TaskError::new(text).code("no_hook"));
    };
    let id = ctx.run_id();
    let body = notice.body(id).map_err(|error| TaskError::new(error).permanent())?;
    let sent = async {
        match &hook.channel {
            Channel::Webhook(webhook) => webhook.send(id, body, hook.timeout).await,
            Channel::Command(command) => command.run(body).await,
        }
    };
    let sent = tokio::time::timeout(hook.timeout, sent).await.unwrap_or_else(|_| {
        Err(Undelivered::ForNow(format!("was not delivered within {:?}", hook.timeout)))
    });
    let name = &hook.name;
    sent.map_err(|undelivered| match undelivered {
        Undelivered::ForNow(why) => TaskError::new(format!("hook {name:?} {why}")),
        Undelivered::ForGood(why) => TaskError::new(format!("hook {name:?} {why}")).permanent(),
    })
}
