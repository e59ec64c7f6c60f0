//! The examples, with what happens to each run of them from outside and what it must come to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use windlass::{Registration, RunHandle, TaskState, Windlass};

use crate::examples::agent::{Model, agent};
use crate::examples::nightly_report::report;
use crate::examples::onboarding::onboarding;
use crate::examples::order::{Order, order};
use crate::examples::saga::{Bookings, journey};

/// A wait that ends by itself, many times in a test.
const SHORT: Duration = Duration::from_millis(50);

/// A wait that does not.
const LONG: Duration = Duration::from_secs(3_600);

/// Between two looks at a run.
const LOOK: Duration = Duration::from_millis(10);

/// One shop more than the one that is closed.
const SHOPS: u32 = 14;

/// An example, and one way for it to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Shipped,
    Refunded,
    Refused,
    Silent,
    Confirmed,
    Reported,
    Answered,
    Stranded,
    CalledOff,
}

/// The other sides of the examples, as far as they have one in their process. Onboarding prints
/// its mails.
#[derive(Clone)]
pub(super) struct World {
    model: Arc<Model>,
    bookings: Bookings,
}

impl World {
    pub(super) fn new() -> Self {
        let model = Arc::new(Model { calls: AtomicU32::new(0) });
        World { model, bookings: Bookings::default() }
    }

    /// What has happened since the last time.
    pub(super) fn drain(&self) -> Vec<String> {
        let mut effects = self.bookings.take();
        let calls = self.model.calls.swap(0, Ordering::Relaxed);
        effects.extend((0..calls).map(|_| "asked the model".to_owned()));
        effects
    }
}

impl Case {
    const ALL: [Case; 9] = [
        Case::Shipped,
        Case::Refunded,
        Case::Refused,
        Case::Silent,
        Case::Confirmed,
        Case::Reported,
        Case::Answered,
        Case::Stranded,
        Case::CalledOff,
    ];

    pub(super) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(super) fn named(name: &str) -> Self {
        Case::ALL.into_iter().find(|case| case.name() == name).expect("the parent names a case")
    }

    /// How long a function of this case waits for a signal.
    fn patience(self) -> Duration {
        match self {
            Case::Shipped | Case::Silent => SHORT,
            Case::Refunded
            | Case::Refused
            | Case::Confirmed
            | Case::Reported
            | Case::Answered
            | Case::Stranded
            | Case::CalledOff => LONG,
        }
    }

    /// What a worker of the example runs.
    pub(super) fn registrations(self, world: &World) -> Vec<Registration> {
        let patience = self.patience();
        match self {
            Case::Shipped | Case::Refunded | Case::Refused => {
                vec![order(patience).unwrap().registration()]
            }
            Case::Silent | Case::Confirmed => vec![onboarding(patience).unwrap().registration()],
            Case::Reported => {
                let report = report().unwrap();
                vec![report.workflow.registration(), report.count.registration()]
            }
            Case::Answered => vec![agent(Arc::clone(&world.model)).unwrap().registration()],
            Case::Stranded | Case::CalledOff => {
                vec![journey(&world.bookings).unwrap().registration()]
            }
        }
    }

    /// Starts a run for a tenant, which its children and its undoing have too.
    pub(super) async fn start(self, windlass: &Windlass, tenant: &str) -> RunHandle {
        let (world, patience) = (World::new(), self.patience());
        let start = match self {
            Case::Shipped | Case::Refunded => {
                windlass.start(&order(patience).unwrap(), Order { id: 9182, cents: 4_200 })
            }
            Case::Refused => {
                windlass.start(&order(patience).unwrap(), Order { id: 9184, cents: 0 })
            }
            // It is the tenant that mails are sent to.
            Case::Silent | Case::Confirmed => {
                windlass.start(&onboarding(patience).unwrap(), tenant.to_owned())
            }
            Case::Reported => windlass.start(&report().unwrap().workflow, SHOPS),
            Case::Answered => {
                windlass.start(&agent(world.model).unwrap(), "how far is it".to_owned())
            }
            Case::Stranded => {
                windlass.start(&journey(&world.bookings).unwrap(), "the moon".to_owned())
            }
            Case::CalledOff => {
                windlass.start(&journey(&world.bookings).unwrap(), "Lisbon".to_owned())
            }
        };
        start.tenant(tenant).await.unwrap()
    }

    /// What happens to a run from outside.
    pub(super) async fn drive(self, run: RunHandle) {
        match self {
            Case::Shipped | Case::Refused | Case::Silent | Case::Reported | Case::Answered => {}
            Case::Refunded => {
                waits(&run).await;
                run.signal("fraud", "stolen card").await.unwrap();
            }
            Case::Confirmed => {
                waits(&run).await;
                run.signal("confirmed", &()).await.unwrap();
            }
            Case::Stranded => run.signal("confirmed", &()).await.unwrap(),
            Case::CalledOff => {
                waits(&run).await;
                run.cancel("the plans have changed").await.unwrap();
            }
        }
    }

    /// Whether there is a run that undoes each.
    pub(super) fn is_undone(self) -> bool {
        matches!(self, Case::Stranded | Case::CalledOff)
    }

    /// Whether there are runs that it starts.
    pub(super) fn has_children(self) -> bool {
        self == Case::Reported
    }

    /// What the run of each trial must have come to, as its last task says it.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Case::Shipped => {
                r#"checked-order: succeeded "order 9182 shipped from shelf-2 for 4200 cents""#
            }
            Case::Refunded => r#"checked-order: succeeded "payment-* refunded: stolen card""#,
            Case::Refused => "checked-order: failed empty: nothing to charge",
            Case::Silent => r#"onboarding: succeeded "GivenUp""#,
            Case::Confirmed => r#"onboarding: succeeded {"Welcomed":{"account":*,"reminders":0}}"#,
            Case::Reported => r#"mail: succeeded "920 sold, 1 closed""#,
            Case::Answered => {
                "agent: succeeded \"how has 3 letters, far has 3 letters, is has 2 letters, \
                 it has 2 letters\""
            }
            Case::Stranded => "journey: failed unknown: nobody flies there",
            Case::CalledOff => "journey: cancelled",
        }
    }

    /// What happened outside by a run that nobody disturbed.
    pub(super) fn effects(self) -> &'static [&'static str] {
        match self {
            Case::Shipped | Case::Refunded | Case::Refused | Case::Reported => &[],
            Case::Silent => {
                &["please confirm your address", "we still wait for you", "we still wait for you"]
            }
            Case::Confirmed => &["please confirm your address", "welcome"],
            Case::Answered => &["asked the model"; 5],
            Case::Stranded | Case::CalledOff => {
                &["booked a car", "booked a hotel", "gave back a hotel #17", "gave back a car #17"]
            }
        }
    }
}

/// Waits until the function of a run does.
async fn waits(run: &RunHandle) {
    while run.tasks().await.unwrap()[0].state != TaskState::Waiting {
        tokio::time::sleep(LOOK).await;
    }
}
