//! The workflow of the demo: an order of a web shop.
//!
//! ```text
//!            ┌─ charge (flaky) ──────────┐
//! validate ──┼─ reserve-stock ───────────┼─ fraud-window (sleep) ─┐
//!            └─ pick-item-1 … 3 ─┬───────┘                        ├─ ship ── notify
//!                                └─ gift-wrap (if it is a gift) ──┘
//! apologise: only if a task failed
//! ```
//!
//! The handlers do nothing but wait. They run in the worker processes of the demo, which
//! may be killed at any moment, so whatever they need to know is in the store.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Ctx, Error, Failure, RetryPolicy, Task, TaskError, TaskName, Trigger};
use windlass::{Windlass, Workflow};

use super::Pace;
use super::faults::Blow;
use super::report::{Report, Try};

/// How many items each order has, and so how many tasks pick one.
const ITEMS: usize = 3;

/// How often a task is tried before an order is given up. Every kill of a worker costs
/// the attempt that it was at, and the demo may be cut off many times.
const ATTEMPTS: u32 = 50;

/// The task that must be done once and only once.
pub(super) const SHIP_TASK: &str = "ship";

/// The task that takes long for an order with a mishap.
pub(super) const LONG_TASK: &str = "reserve-stock";

/// How long it takes at least, at whatever speed: time to see it and to do something to
/// its worker.
const LONG_TIME_MIN: Duration = Duration::from_millis(1_000);

/// The input of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// The number of the order at its tenant, from 1.
    pub(super) number: u32,
    pub(super) cents: u64,
    pub(super) is_gift: bool,
    /// How many attempts to charge it the bank leaves unanswered.
    pub(super) bank_hiccups: u32,
    /// Whether the bank declines its card until the card is mended.
    pub(super) has_bad_card: bool,
    /// What the demo does to the worker that reserves its stock, which takes long then.
    pub(super) mishap: Option<Blow>,
}

impl Order {
    /// The order with this number; every third answers at once, every fifth is a
    /// gift.
    pub(super) fn numbered(number: u32) -> Self {
        Order {
            number,
            cents: 1_000 + 250 * u64::from(number),
            is_gift: number % 5 == 2,
            bank_hiccups: number % 3,
            has_bad_card: false,
            mishap: None,
        }
    }

    /// The same order, with a mishap.
    pub(super) fn with_mishap(self, blow: Blow) -> Self {
        Order { mishap: Some(blow), ..self }
    }

    /// The same order, paid with a card that is declined.
    pub(super) fn with_bad_card(self) -> Self {
        Order { has_bad_card: true, bank_hiccups: 0, ..self }
    }
}

/// What a charge gives.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Receipt {
    cents: u64,
}

/// What a shipment gives.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Parcel {
    items: Vec<String>,
    wrapping: Option<String>,
    paid_cents: u64,
}

/// The world outside: a bank, which knows from the store what it has to know. Cheap to
/// clone.
#[derive(Clone, Debug)]
struct Bank(Windlass);

impl Bank {
    async fn charge(&self, ctx: &Ctx<Order>) -> Result<Receipt, TaskError> {
        let order = ctx.input();
        if ctx.attempt() <= order.bank_hiccups {
            return Err(TaskError::new("the bank does not answer"));
        }
        // Whoever retries the run has mended the card before.
        if order.has_bad_card && self.0.run(ctx.run_id()).get().await?.round == 1 {
            return Err(TaskError::new("card declined").code("card_declined").permanent());
        }
        Ok(Receipt { cents: order.cents })
    }
}

/// The workflow, with all its times divided by the speed of the demo.
pub(super) fn workflow(pace: Pace, windlass: &Windlass) -> Result<Workflow<Order>, Error> {
    let work = pace.millis(90);
    let long_work = pace.millis(1_200).max(LONG_TIME_MIN);
    let patience = RetryPolicy::exponential().first_delay(pace.millis(250)).attempts(ATTEMPTS);
    let mut order = Workflow::<Order>::builder("order");

    let validate =
        order.task("validate").retry(patience.clone()).run(move |ctx: Ctx<Order>| async move {
            tokio::time::sleep(work).await;
            match ctx.input().cents {
                0 => Err(TaskError::new("the order is empty").permanent()),
                _ => Ok(()),
            }
        });

    let bank = Bank(windlass.clone());
    let charge = order
        .task("charge")
        .after(&validate)
        .retry(patience.clone())
        .timeout(Duration::from_secs(30))
        .run(move |ctx: Ctx<Order>| {
            let bank = bank.clone();
            async move {
                tokio::time::sleep(work).await;
                bank.charge(&ctx).await
            }
        });
    let reserve = order.task(LONG_TASK).after(&validate).retry(patience.clone()).run(
        move |ctx: Ctx<Order>| async move {
            if let Some(blow) = ctx.input().mishap {
                Report::Began { tried: Try::of(&ctx), blow }.send();
                tokio::time::sleep(long_work).await;
            } else {
                tokio::time::sleep(work).await;
            }
            Ok::<_, TaskError>(())
        },
    );
    let picks: Vec<Task<String>> = (1..=ITEMS)
        .map(|item| {
            let pick = order.task(format!("pick-item-{item}")).after(&validate);
            pick.retry(patience.clone()).run(move |ctx: Ctx<Order>| async move {
                tokio::time::sleep(work).await;
                Ok::<_, TaskError>(format!("item {item} of order {}", ctx.input().number))
            })
        })
        .collect();
    let gift_wrap = order
        .task("gift-wrap")
        .after_all(&picks)
        .retry(patience.clone())
        .when(|ctx| ctx.input().is_gift)
        .run(move |_| async move {
            tokio::time::sleep(work).await;
            Ok::<_, TaskError>("red paper".to_owned())
        });

    let window = order
        .sleep("fraud-window", pace.millis(1_500))
        .after(&charge)
        .after(&reserve)
        .after_all(&picks)
        .add();
    // A gift-wrap that was skipped must not keep the parcel back, so a missing output
    // is no obstacle here; only what was paid for is shipped.
    let items: Vec<_> = picks.iter().map(Task::optional).collect();
    let ship = order
        .task(SHIP_TASK)
        .reads((charge.optional(), &items, gift_wrap.optional()))
        .after(&window)
        .trigger(Trigger::NoneFailed)
        .retry(patience.clone())
        .when(|_, (receipt, _, _)| receipt.is_some())
        .run(move |_, (receipt, items, wrapping): Shipment| async move {
            tokio::time::sleep(work).await;
            let receipt = receipt.ok_or_else(|| TaskError::new("nothing was paid").permanent())?;
            let items = items.into_iter().flatten().collect();
            Ok::<_, TaskError>(Parcel { items, wrapping, paid_cents: receipt.cents })
        });
    order.task("notify").reads(&ship).retry(patience.clone()).run(
        move |ctx: Ctx<Order>, parcel: Parcel| async move {
            tokio::time::sleep(work).await;
            let Parcel { items, wrapping, paid_cents } = parcel;
            let wrapped = wrapping.map_or_else(String::new, |paper| format!(" in {paper}"));
            Ok::<_, TaskError>(format!(
                "{}: order {} is on its way, {} items{wrapped} for {paid_cents} cents",
                ctx.tenant(),
                ctx.input().number,
                items.len(),
            ))
        },
    );
    order.on_failure("apologise").retry(patience).run(
        move |ctx: Ctx<Order>, failures: Vec<(TaskName, Failure)>| async move {
            tokio::time::sleep(work).await;
            let reasons: Vec<_> = failures.iter().map(|(_, why)| why.message.clone()).collect();
            let (number, reasons) = (ctx.input().number, reasons.join(", "));
            Ok::<_, TaskError>(format!("sorry, order {number} has to wait: {reasons}"))
        },
    );
    order.build()
}

/// What `ship` reads: the charge, the items, the wrapping.
type Shipment = (Option<Receipt>, Vec<Option<String>>, Option<String>);
