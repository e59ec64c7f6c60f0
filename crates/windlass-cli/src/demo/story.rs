//! The story: who starts what, and when something is done to the workers.
//!
//! The turns of the story wait for what the store says, not for a clock, so that
//! they come in the same order at every speed.

use std::pin::pin;
use std::time::Duration;

use tokio::task::JoinHandle;
use windlass::{Error, RunState, TaskState, Timestamp, Windlass, WorkerHandle, Workflow};
use windlass::{TaskEvent, TaskEventKind};

use super::Pace;
use super::ledger::{Ledger, Page};
use super::orders::{Bank, Order, workflow};
use super::view::View;
use crate::text::{count, seconds, shown};

/// The tenant with the burst.
pub(super) const BUSY: &str = "acme";

/// The tenant that comes late.
pub(super) const LATE: &str = "bolt";

/// The number of the busy tenant's order whose card is declined.
const BAD_ORDER: u32 = 3;

/// How long the workers may take to drain; the handlers are much shorter.
const GRACE: Duration = Duration::from_secs(30);

/// The size of the demo.
pub(super) struct Plan {
    pub(super) pace: Pace,
    /// How many orders the busy tenant has.
    pub(super) busy_orders: u32,
    /// How many orders the late tenant has.
    pub(super) late_orders: u32,
    pub(super) workers: usize,
    /// The slots of each worker, which is also the most it claims at once.
    pub(super) slots: usize,
}

impl Plan {
    pub(super) fn new(orders: u32, pace: Pace) -> Self {
        let late_orders = (orders / 4).max(1);
        Plan { pace, busy_orders: orders - late_orders, late_orders, workers: 2, slots: 2 }
    }

    /// The most claims of others before a newcomer's first: with K tenants, claims
    /// of up to b tasks and c workers that claim, it is K·b + c.
    pub(super) fn fairness_bound(&self) -> usize {
        let tenants = [BUSY, LATE].len();
        tenants * self.slots + self.workers
    }
}

/// How the story ended.
pub(super) enum Ending {
    Told(Ledger),
    Interrupted { open_runs: usize },
}

/// Tells the story, until its end or until the user interrupts it. The workers are
/// drained either way.
pub(super) async fn tell(
    windlass: &Windlass,
    plan: &Plan,
    view: &mut View,
) -> anyhow::Result<Ending> {
    let mut story = Story::begin(windlass, plan, view).await?;
    let look_interval = plan.pace.millis(40);
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            biased;
            signal = &mut interrupted => {
                signal?;
                story.say("interrupted: the workers drain").await?;
                let ledger = story.end().await?;
                let is_open = |page: &&Page| !page.record.state.is_final();
                let open_runs = ledger.pages.iter().filter(is_open).count();
                return Ok(Ending::Interrupted { open_runs });
            }
            () = tokio::time::sleep(look_interval) => {}
        }
        story.look().await?;
        if story.is_over() {
            return Ok(Ending::Told(story.end().await?));
        }
        story.go_on().await?;
    }
}

struct Story<'a> {
    windlass: &'a Windlass,
    plan: &'a Plan,
    view: &'a mut View,
    workflow: Workflow<Order>,
    bank: Bank,
    ledger: Ledger,
    workers: Vec<(String, WorkerHandle)>,
    workers_hired: usize,
    arrival: Arrival,
    deploy: Deploy,
    is_card_mended: bool,
}

/// Where the late tenant is.
#[derive(PartialEq)]
enum Arrival {
    Awaited,
    Started,
    Served,
}

/// Where the rolling deploy is.
enum Deploy {
    Awaited,
    Draining { worker: String, since: Timestamp, end: JoinHandle<Result<(), Error>> },
    Done,
}

impl<'a> Story<'a> {
    async fn begin(
        windlass: &'a Windlass,
        plan: &'a Plan,
        view: &'a mut View,
    ) -> anyhow::Result<Self> {
        let bank = Bank::default();
        let mut story = Story {
            windlass,
            plan,
            view,
            workflow: workflow(plan.pace, &bank)?,
            bank,
            ledger: Ledger::default(),
            workers: Vec::new(),
            workers_hired: 0,
            arrival: Arrival::Awaited,
            deploy: Deploy::Awaited,
            is_card_mended: false,
        };
        for _ in 0..plan.workers {
            story.hire()?;
        }
        let (workers, slots) = (count(plan.workers, "worker"), count(plan.slots, "slot"));
        let orders = count(plan.busy_orders as usize, "order");
        story.start(BUSY, plan.busy_orders).await?;
        let tasks = count(story.ledger.tally().tasks, "task");
        story.say(&format!("{workers} with {slots} each wait for tasks")).await?;
        story.say(&format!("{BUSY} starts {orders} at once: {tasks}")).await?;
        Ok(story)
    }

    /// Spawns a worker and answers its name.
    fn hire(&mut self) -> Result<String, Error> {
        self.workers_hired += 1;
        let name = format!("worker-{}", self.workers_hired);
        let builder = self.windlass.worker().register(&self.workflow).name(&name);
        let worker = builder.slots(self.plan.slots).grace(GRACE).spawn()?;
        self.workers.push((name.clone(), worker));
        Ok(name)
    }

    async fn start(&mut self, tenant: &str, orders: u32) -> Result<(), Error> {
        let starts: Vec<_> = (1..=orders)
            .map(|number| {
                let order = Order::numbered(number);
                let is_bad = tenant == BUSY && number == BAD_ORDER;
                let order = if is_bad { order.with_bad_card() } else { order };
                let start = self.windlass.start(&self.workflow, order);
                start.tenant(tenant).key(format!("order-{number:02}"))
            })
            .collect();
        for started in self.windlass.start_all(starts).await? {
            self.ledger.add(started?).await?;
        }
        Ok(())
    }

    async fn say(&mut self, line: &str) -> anyhow::Result<()> {
        let now = self.windlass.store().now().await?;
        Ok(self.view.say(now, line)?)
    }

    /// Reads what is new and shows it.
    async fn look(&mut self) -> anyhow::Result<()> {
        let new = self.ledger.refresh(self.windlass.store().as_ref()).await?;
        for (place, event) in &new {
            self.view.event(&self.ledger.pages[*place], event)?;
        }
        self.view.update(&self.ledger);
        Ok(())
    }

    fn is_over(&self) -> bool {
        let is_deployed = matches!(self.deploy, Deploy::Done);
        let is_told = self.arrival == Arrival::Served && is_deployed && self.is_card_mended;
        is_told && self.ledger.is_closed()
    }

    /// Takes every turn of the story whose time has come.
    async fn go_on(&mut self) -> anyhow::Result<()> {
        self.go_on_with_arrival().await?;
        self.go_on_with_deploy().await?;
        self.go_on_with_bad_order().await
    }

    /// The late tenant comes when the busy one has been served once per order, and
    /// so has the most tasks ready.
    async fn go_on_with_arrival(&mut self) -> anyhow::Result<()> {
        match self.arrival {
            Arrival::Awaited => {
                let claims = self.ledger.tally().attempts;
                if claims < self.plan.busy_orders as usize {
                    return Ok(());
                }
                self.start(LATE, self.plan.late_orders).await?;
                self.arrival = Arrival::Started;
                let orders = count(self.plan.late_orders as usize, "order");
                self.say(&format!("{LATE} comes late with {orders}")).await
            }
            Arrival::Started => {
                let Some(newcomer) = self.ledger.newcomer(LATE) else { return Ok(()) };
                self.arrival = Arrival::Served;
                let bound = self.plan.fairness_bound();
                self.say(&newcomer.sentence(bound)).await
            }
            Arrival::Served => Ok(()),
        }
    }

    /// A worker is drained, and replaced once it has left, when a third of the tasks
    /// has ended.
    async fn go_on_with_deploy(&mut self) -> anyhow::Result<()> {
        match &mut self.deploy {
            Deploy::Awaited => {
                let tally = self.ledger.tally();
                if self.arrival == Arrival::Awaited || tally.ended_tasks * 3 < tally.tasks {
                    return Ok(());
                }
                let (worker, handle) = self.workers.remove(0);
                let since = self.windlass.store().now().await?;
                let end = tokio::spawn(handle.drain());
                let line = format!("{worker} drains: it claims no more and finishes what it holds");
                self.deploy = Deploy::Draining { worker, since, end };
                self.say(&line).await
            }
            Deploy::Draining { worker, since, end } => {
                if !end.is_finished() {
                    return Ok(());
                }
                end.await??;
                let took = self.windlass.store().now().await?.since(*since);
                let left = format!("{worker} has left after {}", seconds(took));
                self.deploy = Deploy::Done;
                let name = self.hire()?;
                self.say(&format!("{left}, {name} takes its place")).await
            }
            Deploy::Done => Ok(()),
        }
    }

    /// The order whose card was declined is retried once it has failed.
    async fn go_on_with_bad_order(&mut self) -> anyhow::Result<()> {
        if self.is_card_mended {
            return Ok(());
        }
        let is_failed = |page: &Page| page.is_closed() && page.record.state == RunState::Failed;
        let Some(place) = self.ledger.pages.iter().position(is_failed) else { return Ok(()) };
        let page = &self.ledger.pages[place];
        let handle = page.handle.clone();
        let label = format!("{} {}", shown(page.record.tenant.as_str()), shown(page.label()));
        let failed = format!("{label} failed: {}", describe_failure(page));
        let on_failure = self.workflow.definition().on_failure();
        let on_failure = on_failure.and_then(|index| page.tasks.get(index.as_usize()));
        let on_failure = on_failure.and_then(|task| {
            let output = shown(task.output.as_ref()?.as_str());
            Some(format!("{label}: {} gave {output}", task.name))
        });
        self.say(&failed).await?;
        if let Some(line) = on_failure {
            self.say(&line).await?;
        }
        self.bank.mend_card();
        self.is_card_mended = true;
        let round = handle.retry().await?;
        self.look().await?;
        let page = &self.ledger.pages[place];
        let is_reset = |event: &&TaskEvent| event.kind == TaskEventKind::Reset;
        let reset = page.task_events().filter(is_reset).count();
        let kept = page.tasks.len() - reset;
        let anew = count(reset, "task");
        self.say(&format!("{label}: card mended, round {round}: {anew} anew, {kept} kept")).await
    }

    /// Drains the workers and gives back what was read.
    async fn end(mut self) -> anyhow::Result<Ledger> {
        if let Deploy::Draining { end, .. } = self.deploy {
            end.await??;
        }
        self.workers.iter().for_each(|(_, worker)| worker.begin_drain());
        for (_, worker) in self.workers.drain(..) {
            worker.ended().await?;
        }
        self.ledger.refresh(self.windlass.store().as_ref()).await?;
        Ok(self.ledger)
    }
}

/// Which tasks of a run failed and why, and what that meant for the others.
fn describe_failure(page: &Page) -> String {
    let in_state = |state| page.tasks.iter().filter(move |task| task.state == state);
    let reasons = in_state(TaskState::Failed).filter_map(|task| {
        let failure = task.failure.as_ref()?;
        Some(format!("{}: {}", task.name, shown(&failure.message)))
    });
    let reasons: Vec<_> = reasons.collect();
    let skipped = count(in_state(TaskState::Skipped).count(), "task");
    format!("{}; {skipped} skipped", reasons.join(", "))
}
