//! An order as a durable function: reserve, charge, give fraud a day to show up, ship.
//!
//! It reads like a program that runs for a day. In truth nothing runs while it waits: the
//! function is put away, and run again from its beginning when the day is over or someone
//! reports fraud. Steps that have a result are not run again, their result is simply there.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use windlass::{Ctx, Error, Function, RetryPolicy, TaskError, Windlass};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) cents: u64,
}

/// What the shop does outside of Windlass. A step may be run twice if a worker dies at the
/// wrong moment, so whatever costs money is given a key by which the other side knows it.
mod shop {
    use windlass::TaskError;

    pub(crate) async fn reserve(order: u64) -> Result<String, TaskError> {
        Ok(format!("shelf-{}", order % 10))
    }

    pub(crate) async fn charge(cents: u64, key: uuid::Uuid) -> Result<String, TaskError> {
        // Tried again, it would be the same: the order fails at once.
        if cents == 0 {
            return Err(TaskError::new("nothing to charge").code("empty").permanent());
        }
        Ok(format!("payment-{}", key.simple()))
    }
}

async fn handle(ctx: Ctx<Order>, fraud_window: Duration) -> Result<String, TaskError> {
    let Order { id, cents } = *ctx.input();
    let shelf = ctx.step("reserve", || shop::reserve(id)).await?;

    // The same in every attempt, so a repeated charge is known as one.
    let key = ctx.uuid();
    let charge = ctx.step("charge", || shop::charge(cents, key));
    let policy = RetryPolicy::exponential().attempts(5);
    let payment = charge.retry(policy).timeout(Duration::from_secs(10)).await?;

    // A day in which no process needs to live. A signal ends it early.
    let fraud = ctx.signal::<String>("fraud").timeout(fraud_window).await?;
    if let Some(reason) = fraud {
        let refund = ctx
            .step("refund", async || Ok::<_, TaskError>(format!("{payment} refunded: {reason}")));
        return refund.await;
    }
    let ship = ctx.step("ship", async || {
        Ok::<_, TaskError>(format!("order {id} shipped from {shelf} for {cents} cents"))
    });
    ship.await
}

pub(crate) fn order(fraud_window: Duration) -> Result<Function<Order, String>, Error> {
    Function::new("checked-order", move |ctx| handle(ctx, fraud_window))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // In real life this is a day.
    let order = order(Duration::from_millis(200))?;
    // Where WINDLASS_SERVER or DATABASE_URL says; in memory if neither is set.
    let windlass = Windlass::from_env().await?.unwrap_or_else(Windlass::memory);
    let worker = windlass.worker().register(&order).spawn()?;

    // The key makes a repeated start give the same run, not another order.
    let good = Order { id: 9182, cents: 4_200 };
    let run = windlass.start(&order, good).key("order-9182").await?;
    run.wait().await?;
    let said = run.output(order.output()).await?;
    ensure!(said == "order 9182 shipped from shelf-2 for 4200 cents", "{said}");
    println!("{said}");

    // A signal may come before the function waits for it: it is kept.
    let stolen = Order { id: 9183, cents: 99_900 };
    let run = windlass.start(&order, stolen).await?;
    run.signal("fraud", "stolen card").await?;
    run.wait().await?;
    let said = run.output(order.output()).await?;
    ensure!(said.ends_with("refunded: stolen card"), "{said}");
    println!("{said}");

    worker.drain().await?;
    Ok(())
}
