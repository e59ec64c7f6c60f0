//! A new customer has to confirm an address: wait for it, remind twice, and give up.
//!
//! It shows a wait for a signal that ends with a time, a loop of steps with one name, and
//! that the many functions that wait take no slot: one worker with one slot serves them all.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use windlass::{Ctx, Error, Function, TaskError, Windlass};

/// How often a customer is reminded.
const REMINDERS: u32 = 2;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Welcomed { account: u64, reminders: u32 },
    GivenUp,
}

/// What the mail would say.
async fn mail(to: &str, text: &str) -> Result<(), TaskError> {
    println!("to {to}: {text}");
    Ok(())
}

async fn handle(ctx: Ctx<String>, patience: Duration) -> Result<Outcome, TaskError> {
    let to = ctx.input().as_str();
    // A random number that stays the same when the function is run again.
    let account = ctx.random() % 1_000_000;
    ctx.step("invite", || mail(to, "please confirm your address")).await?;

    for reminders in 0..=REMINDERS {
        // `None` if nobody has confirmed by then. Each wait is counted from its own beginning.
        let confirmed = ctx.signal::<()>("confirmed").timeout(patience).await?;
        if confirmed.is_some() {
            ctx.step("welcome", || mail(to, "welcome")).await?;
            return Ok(Outcome::Welcomed { account, reminders });
        }
        if reminders < REMINDERS {
            // One name for many steps: they are told apart by their order.
            ctx.step("remind", || mail(to, "we still wait for you")).await?;
        }
    }
    Ok(Outcome::GivenUp)
}

pub(crate) fn onboarding(patience: Duration) -> Result<Function<String, Outcome>, Error> {
    Function::new("onboarding", move |ctx| handle(ctx, patience))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // In real life these are days.
    let patience = Duration::from_millis(500);
    let onboarding = onboarding(patience)?;
    // Where WINDLASS_SERVER or DATABASE_URL says; in memory if neither is set.
    let windlass = Windlass::from_env().await?.unwrap_or_else(Windlass::memory);
    let worker = windlass.worker().register(&onboarding).slots(1).spawn()?;

    let silent = windlass.start(&onboarding, "eve@example.org".to_owned()).await?;
    let prompt = windlass.start(&onboarding, "ada@example.org".to_owned()).await?;
    let late = windlass.start(&onboarding, "bob@example.org".to_owned()).await?;

    // This is what a web handler does when the link in the mail is followed.
    prompt.signal("confirmed", &()).await?;
    // Bob follows it when he is reminded.
    while !late.steps("onboarding").await?.iter().any(|step| step.name.as_str() == "remind") {
        tokio::time::sleep(patience / 10).await;
    }
    late.signal("confirmed", &()).await?;

    for run in [&silent, &prompt, &late] {
        run.wait().await?;
    }
    ensure!(silent.output(onboarding.output()).await? == Outcome::GivenUp);
    let prompt = prompt.output(onboarding.output()).await?;
    ensure!(matches!(prompt, Outcome::Welcomed { reminders: 0, .. }), "{prompt:?}");
    let late = late.output(onboarding.output()).await?;
    ensure!(matches!(late, Outcome::Welcomed { reminders: 1 | 2, .. }), "{late:?}");

    worker.drain().await?;
    Ok(())
}
