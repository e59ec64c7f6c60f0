//! An order: charge the card, wait out the fraud window, ship.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Ctx, RetryPolicy, TaskError, Windlass, Workflow};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    paid: u64,
}

async fn charge(ctx: Ctx<Order>) -> Result<Receipt, TaskError> {
    match ctx.attempt() {
        1 => Err(TaskError::new("the bank does not answer")), // tried again
        _ => Ok(Receipt { paid: ctx.input().cents }),
    }
}

async fn ship(ctx: Ctx<Order>, receipt: Receipt) -> Result<String, TaskError> {
    Ok(format!("order {} shipped for {} cents", ctx.input().id, receipt.paid))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut order = Workflow::<Order>::builder("order");
    let retry = RetryPolicy::exponential().first_delay(Duration::from_millis(50)).attempts(5);
    let charge = order.task("charge").retry(retry).run(charge);
    // Nothing waits in a process: the sleep is a row with the time it ends.
    let window = order.sleep("fraud-window", Duration::from_millis(100)).after(&charge).add();
    let ship = order.task("ship").reads(&charge).after(&window).run(ship);
    let order = order.build()?;

    // Where WINDLASS_SERVER or DATABASE_URL says; in memory if neither is set.
    let windlass = Windlass::from_env().await?.unwrap_or_else(Windlass::memory);
    let worker = windlass.worker().register(&order).slots(50).spawn()?;
    let input = Order { id: 9182, cents: 4_200 };
    let run = windlass.start(&order, input).tenant("acme").key("order-9182").await?;
    run.wait().await?;
    println!("{}", run.output(&ship).await?);
    worker.drain().await?;
    Ok(())
}
