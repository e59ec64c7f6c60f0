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
//! The handlers do nothing but wait. The bank that they charge is a value of this
//! process, so that the story can mend a card.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Ctx, Error, Failure, RetryPolicy, Task, TaskError, TaskName, Trigger, Workflow};

use super::Pace;

/// How many items each order has, and so how many tasks pick one.
const ITEMS: usize = 3;

/// How often the bank is asked before an order is given up.
const CHARGE_ATTEMPTS: u32 = 4;

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
        }
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

/// The world outside: a bank. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Bank {
    is_card_mended: Arc<AtomicBool>,
}

impl Bank {
    /// Lets the bank accept the bad card from now on.
    pub(super) fn mend_card(&self) {
        self.is_card_mended.store(true, Ordering::Release);
    }

    fn charge(&self, order: &Order, attempt: u32) -> Result<Receipt, TaskError> {
        if attempt <= order.bank_hiccups {
            return Err(TaskError::new("the bank does not answer"));
        }
        if order.has_bad_card && !self.is_card_mended.load(Ordering::Acquire) {
            return Err(TaskError::new("card declined").code("card_declined").permanent());
        }
        Ok(Receipt { cents: order.cents })
    }
}

/// The workflow, with all its times divided by the speed of the demo.
pub(super) fn workflow(pace: Pace, bank: &Bank) -> Result<Workflow<Order>, Error> {
    let work = pace.millis(90);
    let mut order = Workflow::<Order>::builder("order");

    let validate = order.task("validate").run(move |ctx: Ctx<Order>| async move {
        tokio::time::sleep(work).await;
        match ctx.input().cents {
            0 => Err(TaskError::new("the order is empty").permanent()),
            _ => Ok(()),
        }
    });

    let backoff = RetryPolicy::exponential().first_delay(pace.millis(250));
    let bank = bank.clone();
    let charge = order
        .task("charge")
        .after(&validate)
        .retry(backoff.attempts(CHARGE_ATTEMPTS))
        .timeout(Duration::from_secs(30))
        .run(move |ctx: Ctx<Order>| {
            let bank = bank.clone();
            async move {
                tokio::time::sleep(work).await;
                bank.charge(ctx.input(), ctx.attempt())
            }
        });
    let reserve = order.task("reserve-stock").after(&validate).run(move |_| async move {
        tokio::time::sleep(work).await;
        Ok::<_, TaskError>(())
    });
    let picks: Vec<Task<String>> = (1..=ITEMS)
        .map(|item| {
            order.task(format!("pick-item-{item}")).after(&validate).run(
                move |ctx: Ctx<Order>| async move {
                    tokio::time::sleep(work).await;
                    Ok::<_, TaskError>(format!("item {item} of order {}", ctx.input().number))
                },
            )
        })
        .collect();
    let gift_wrap = order.task("gift-wrap").after_all(&picks).when(|ctx| ctx.input().is_gift).run(
        move |_| async move {
            tokio::time::sleep(work).await;
            Ok::<_, TaskError>("red paper".to_owned())
        },
    );

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
        .task("ship")
        .reads((charge.optional(), &items, gift_wrap.optional()))
        .after(&window)
        .trigger(Trigger::NoneFailed)
        .when(|_, (receipt, _, _)| receipt.is_some())
        .run(move |_, (receipt, items, wrapping): Shipment| async move {
            tokio::time::sleep(work).await;
            let receipt = receipt.ok_or_else(|| TaskError::new("nothing was paid").permanent())?;
            let items = items.into_iter().flatten().collect();
            Ok::<_, TaskError>(Parcel { items, wrapping, paid_cents: receipt.cents })
        });
    order.task("notify").reads(&ship).run(move |ctx: Ctx<Order>, parcel: Parcel| async move {
        tokio::time::sleep(work).await;
        let Parcel { items, wrapping, paid_cents } = parcel;
        let wrapped = wrapping.map_or_else(String::new, |paper| format!(" in {paper}"));
        Ok::<_, TaskError>(format!(
            "{}: order {} is on its way, {} items{wrapped} for {paid_cents} cents",
            ctx.tenant(),
            ctx.input().number,
            items.len(),
        ))
    });
    order.on_failure("apologise").run(
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
