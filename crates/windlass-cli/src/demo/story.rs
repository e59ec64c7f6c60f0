//! The story: who starts what, and when something is done to the workers.
//!
//! The turns of the story wait for what the store says, not for a clock, so that they
//! come in the same order at every speed. What has happened already is read from the
//! store as well, so a demo that was cut off goes on where it was.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::time::MissedTickBehavior;
use windlass::store::StoreError;
use windlass::{Error, ErrorKind, RunState, TaskEvent, TaskEventKind, TaskState, Timestamp};
use windlass::{Windlass, Workflow};

use super::faults::{Blow, Recovery, Stage, Victim};
use super::ledger::{Ledger, Page};
use super::orders::{LONG_TASK, Order, workflow};
use super::staff::{End, Heard, Staff};
use super::view::View;
use super::{Pace, worker};
use crate::signals::Signals;
use crate::text::{coded, count, seconds, shown};

/// The tenant with the burst.
pub(super) const BUSY: &str = "acme";

/// The tenant that comes late.
pub(super) const LATE: &str = "bolt";

/// The numbers of the busy tenant's orders to which something happens: whose worker is
/// killed, whose worker is frozen, and whose card is declined.
const CRASH_ORDER: u32 = 1;
const FREEZE_ORDER: u32 = 2;
const BAD_ORDER: u32 = 3;

/// The metadata by which a cut-off demo knows its size.
const ORDERS: &str = "orders";

/// The most rounds of one order; the story needs two.
const ROUNDS_MAX: u32 = 10;

/// How long the database may be out of reach before the demo gives up.
const OUTAGE_MAX: Duration = Duration::from_secs(10);

/// How long nothing may happen before the demo gives up, at the speed 1.
const QUIET_MAX: Duration = Duration::from_secs(20);

/// The size of the demo.
pub(super) struct Plan {
    pub(super) pace: Pace,
    pub(super) orders: u32,
    /// How many orders the busy tenant has.
    pub(super) busy_orders: u32,
    /// How many orders the late tenant has.
    pub(super) late_orders: u32,
    pub(super) workers: usize,
}

impl Plan {
    pub(super) fn new(orders: u32, pace: Pace) -> Self {
        let late_orders = (orders / 4).max(1);
        Plan { pace, orders, busy_orders: orders - late_orders, late_orders, workers: 4 }
    }

    /// The plan of the demo that was cut off, or a new one of this size.
    pub(super) fn adopt(ledger: &Ledger, orders: u32, pace: Pace) -> Self {
        let found = ledger.pages.first().and_then(|page| page.record.metadata.get(ORDERS));
        Plan::new(found.and_then(|found| found.parse().ok()).unwrap_or(orders), pace)
    }

    /// The most claims of others before a newcomer's first: with K tenants, claims
    /// of up to b tasks and c workers that claim, it is K·b + c.
    pub(super) fn fairness_bound(&self) -> usize {
        let tenants = [BUSY, LATE].len();
        tenants * worker::SLOTS + self.workers
    }
}

/// How the story ended.
pub(super) enum Ending {
    Told(Told),
    Interrupted { exit_code: u8, open_runs: usize },
}

/// A story that was told to its end.
pub(super) struct Told {
    pub(super) ledger: Ledger,
    /// How many writes of workers were refused, as the workers say.
    pub(super) refused: usize,
}

/// What a story is told with.
pub(super) struct Cast<'a> {
    pub(super) windlass: &'a Windlass,
    pub(super) plan: &'a Plan,
    pub(super) view: &'a mut View,
    pub(super) ledger: Ledger,
    pub(super) staff: Staff,
}

/// Tells the story, until its end or until the user interrupts it. The workers are
/// drained either way.
pub(super) async fn tell(cast: Cast<'_>, signals: &mut Signals) -> anyhow::Result<Ending> {
    let mut ticks = tokio::time::interval(cast.plan.pace.poll());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut story = Story::begin(cast)?;
    story.say(&story.first_line()).await?;
    let mut failed_since = None;
    // Counted in steps: a demo that is frozen itself is not quiet.
    let poll = story.plan.pace.poll().as_secs_f64();
    let quiet_max = (QUIET_MAX.as_secs_f64() / story.plan.pace.speed.min(1.0) / poll) as u32;
    let (mut seen, mut quiet) = (0, 0);
    loop {
        tokio::select! {
            biased;
            exit_code = signals.next() => {
                story.say("interrupted: the workers drain").await?;
                let Told { ledger, .. } = story.end().await?;
                let is_open = |page: &&Page| !page.record.state.is_final();
                let open_runs = ledger.pages.iter().filter(is_open).count();
                return Ok(Ending::Interrupted { exit_code, open_runs });
            }
            _ = ticks.tick() => {}
        }
        match story.step().await {
            Ok(false) => {
                failed_since = None;
                let now_seen = story.ledger.pages.iter().map(|page| page.events.len()).sum();
                quiet = if seen == now_seen { quiet + 1 } else { 0 };
                seen = now_seen;
                if quiet > quiet_max {
                    return Err(story.stalled().await);
                }
            }
            Ok(true) => return Ok(Ending::Told(story.end().await?)),
            // The database may have its moments; every step can be repeated.
            Err(error) if is_retryable(&error) => {
                let since = failed_since.get_or_insert_with(Instant::now);
                if since.elapsed() > OUTAGE_MAX {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_retryable(error: &anyhow::Error) -> bool {
    let of_engine = error.downcast_ref().is_some_and(Error::is_retryable);
    of_engine || error.downcast_ref().is_some_and(StoreError::is_retryable)
}

struct Story<'a> {
    windlass: &'a Windlass,
    plan: &'a Plan,
    view: &'a mut View,
    workflow: Workflow<Order>,
    ledger: Ledger,
    staff: Staff,
    refused: usize,
    arrival: Arrival,
    deploy: Deploy,
    crash: Stage,
    freeze: Stage,
}

/// Which tenants have come.
#[derive(PartialEq)]
enum Arrival {
    Nobody,
    Busy,
    Late,
    /// The late tenant has had its first claim.
    Served,
}

/// Where the rolling deploy is.
enum Deploy {
    Awaited,
    Draining { since: Timestamp },
    Done,
}

impl<'a> Story<'a> {
    fn begin(cast: Cast<'a>) -> anyhow::Result<Self> {
        let Cast { windlass, plan, view, ledger, staff } = cast;
        let arrival = match (ledger.runs_of(BUSY), ledger.runs_of(LATE)) {
            (0, 0) => Arrival::Nobody,
            (_, 0) => Arrival::Busy,
            (_, _) => Arrival::Late,
        };
        let mut story = Story {
            windlass,
            plan,
            view,
            workflow: workflow(plan.pace, windlass)?,
            ledger,
            staff,
            refused: 0,
            arrival,
            deploy: Deploy::Awaited,
            crash: Stage::Awaited,
            freeze: Stage::Awaited,
        };
        for _ in 0..plan.workers {
            story.staff.hire()?;
        }
        Ok(story)
    }

    /// Why nothing happens any more, as far as it can be found out.
    async fn stalled(&self) -> anyhow::Error {
        // A write that changes nothing.
        match self.windlass.set_weight(BUSY, 1).await {
            Err(error) => anyhow::Error::new(error)
                .context("nothing happens any more, the database cannot be written to"),
            Ok(()) => coded(
                ErrorKind::Unavailable,
                "nothing happens any more, although the database can be written to; start the \
                 demo again to go on",
            ),
        }
    }

    fn first_line(&self) -> String {
        let slots = count(worker::SLOTS, "slot");
        format!("{} worker processes with {slots} each wait for tasks", self.plan.workers)
    }

    /// Starts a tenant's orders, all of them or none. Each has its key, so none is
    /// there twice, whoever repeats this.
    async fn start(&mut self, tenant: &str, orders: u32) -> anyhow::Result<()> {
        let start = |number| {
            let order = match number {
                CRASH_ORDER if tenant == BUSY => Order::numbered(number).with_mishap(Blow::Kill),
                FREEZE_ORDER if tenant == BUSY => Order::numbered(number).with_mishap(Blow::Freeze),
                BAD_ORDER if tenant == BUSY => Order::numbered(number).with_bad_card(),
                _ => Order::numbered(number),
            };
            let start = self.windlass.start(&self.workflow, order);
            let start = start.metadata(ORDERS, self.plan.orders.to_string());
            start.tenant(tenant).key(key(number))
        };
        for started in self.windlass.start_all((1..=orders).map(start)).await? {
            started?;
        }
        self.look().await
    }

    async fn say(&mut self, line: &str) -> anyhow::Result<()> {
        let now = self.windlass.store().now().await?;
        Ok(self.view.say(now, line)?)
    }

    /// Reads what is new and shows it.
    async fn look(&mut self) -> anyhow::Result<()> {
        self.ledger.refresh(self.windlass).await?;
        for (place, event) in self.ledger.take_new() {
            self.view.event(&self.ledger.pages[place], &event)?;
        }
        self.view.update(&self.ledger);
        Ok(())
    }

    /// Takes in what happened to the workers and what they said.
    async fn hear(&mut self) -> anyhow::Result<()> {
        while let Some(heard) = self.staff.next_heard() {
            match heard {
                Heard::Struck(Blow::Kill, victim) => self.crash = Stage::Happened(victim),
                Heard::Struck(Blow::Freeze, victim) => self.freeze = Stage::Happened(victim),
                Heard::Logged { worker, line } => {
                    let Stage::Thawed(victim, _) = &self.freeze else { continue };
                    if !line.refuses(&victim.tried) {
                        continue;
                    }
                    let (fence, said) = (victim.tried.fence, shown(&line.to_string()));
                    self.refused += 1;
                    self.freeze = Stage::Over;
                    self.say(&format!("{worker}: its write with fence {fence} is refused")).await?;
                    self.say(&format!("{worker} says: {said}")).await?;
                }
            }
        }
        if let Some(victim) = self.freeze.overdue() {
            let line = format!("{} gave the task up by itself", victim.worker);
            self.freeze = Stage::Over;
            self.say(&line).await?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let is_all_there = self.ledger.runs_of(BUSY) >= self.plan.busy_orders as usize
            && self.ledger.runs_of(LATE) >= self.plan.late_orders as usize;
        let is_failed = |page: &Page| page.record.state == RunState::Failed;
        is_all_there
            && self.ledger.is_closed()
            && !self.ledger.pages.iter().any(is_failed)
            && self.crash.victim().is_none()
            && self.freeze.victim().is_none()
            && !matches!(self.deploy, Deploy::Draining { .. })
    }

    /// Looks, and takes every turn whose time has come; says whether that was all.
    async fn step(&mut self) -> anyhow::Result<bool> {
        // First, because a blow is dealt before the store shows it.
        self.hear().await?;
        self.look().await?;
        if self.is_over() {
            return Ok(true);
        }
        self.go_on().await?;
        Ok(false)
    }

    /// Takes every turn of the story whose time has come.
    async fn go_on(&mut self) -> anyhow::Result<()> {
        self.go_on_with_arrival().await?;
        self.go_on_with_crash().await?;
        self.go_on_with_freeze().await?;
        self.go_on_with_deploy().await?;
        self.go_on_with_failed_order().await
    }

    /// The busy tenant comes at once. The late one comes when the busy one has been
    /// served once per order, and so has the most tasks ready.
    async fn go_on_with_arrival(&mut self) -> anyhow::Result<()> {
        match self.arrival {
            Arrival::Nobody => {
                self.start(BUSY, self.plan.busy_orders).await?;
                self.arrival = Arrival::Busy;
                let (orders, tasks) = (self.plan.busy_orders, self.ledger.tally().tasks);
                let (orders, tasks) = (count(orders as usize, "order"), count(tasks, "task"));
                self.say(&format!("{BUSY} starts {orders} at once: {tasks}")).await
            }
            Arrival::Busy => {
                let claims = self.ledger.tally().attempts;
                if claims < self.plan.busy_orders as usize {
                    return Ok(());
                }
                self.start(LATE, self.plan.late_orders).await?;
                self.arrival = Arrival::Late;
                let orders = count(self.plan.late_orders as usize, "order");
                self.say(&format!("{LATE} comes late with {orders}")).await
            }
            Arrival::Late => {
                let Some(newcomer) = self.ledger.newcomer(LATE) else { return Ok(()) };
                self.arrival = Arrival::Served;
                let bound = self.plan.fairness_bound();
                self.say(&newcomer.sentence(bound)).await
            }
            Arrival::Served => Ok(()),
        }
    }

    /// A worker was killed in the middle of a task, and another takes its place.
    async fn go_on_with_crash(&mut self) -> anyhow::Result<()> {
        if let Stage::Happened(victim) = &self.crash {
            let line = format!("{} is killed (SIGKILL) in the middle of", victim.worker);
            let line = format!("{line} {}", self.describe(victim));
            self.crash = Stage::Told(victim.clone());
            let name = self.staff.hire()?;
            self.say(&line).await?;
            self.say(&format!("{name} takes its place")).await?;
        }
        if let Stage::Told(victim) = &self.crash
            && let Some(line) = self.describe_recovery(victim)
        {
            self.crash = Stage::Over;
            self.say(&line).await?;
        }
        Ok(())
    }

    /// A worker was frozen in the middle of a task, until the task is another's.
    async fn go_on_with_freeze(&mut self) -> anyhow::Result<()> {
        if let Stage::Happened(victim) = &self.freeze {
            let line = format!("{} is frozen (SIGSTOP) in the middle of", victim.worker);
            let line = format!("{line} {}", self.describe(victim));
            self.freeze = Stage::Told(victim.clone());
            self.say(&line).await?;
        }
        if let Stage::Told(victim) = &self.freeze
            && let Some(line) = self.describe_recovery(victim)
        {
            let victim = victim.clone();
            self.say(&line).await?;
            self.say(&format!("{} is thawed (SIGCONT), and goes on", victim.worker)).await?;
            self.staff.thaw(&victim.worker)?;
            self.freeze = Stage::Thawed(victim, tokio::time::Instant::now());
        }
        Ok(())
    }

    fn page(&self, victim: &Victim) -> Option<&Page> {
        self.ledger.pages.iter().find(|page| page.record.id == victim.tried.run)
    }

    fn describe(&self, victim: &Victim) -> String {
        let (attempt, fence) = (victim.tried.attempt, victim.tried.fence);
        format!("{}, attempt {attempt}, fence {fence}", self.task_label(victim))
    }

    fn task_label(&self, victim: &Victim) -> String {
        let run = self.page(victim).map(label).unwrap_or_default();
        format!("{run} {}", victim.tried.task)
    }

    fn describe_recovery(&self, victim: &Victim) -> Option<String> {
        let page = self.page(victim)?;
        let Recovery { expired_at, claimed_at, attempt, fence } =
            Recovery::find(page, &victim.tried)?;
        let lost = seconds(expired_at.since(victim.struck_at));
        let waited = seconds(claimed_at.since(expired_at));
        let task = self.task_label(victim);
        Some(format!(
            "{task}: taken away {lost} later, claimed again after {waited}: attempt {attempt}, \
             fence {fence}"
        ))
    }

    /// A worker is drained, and replaced once it has left, when a third of the tasks
    /// has ended. One that ended by itself is replaced as well.
    async fn go_on_with_deploy(&mut self) -> anyhow::Result<()> {
        for gone in self.staff.departed()? {
            let line = match (gone.end, &self.deploy) {
                // That was told when it happened.
                (End::Killed, _) => continue,
                (End::Told, Deploy::Draining { since, .. }) => {
                    let took = self.windlass.store().now().await?.since(*since);
                    self.deploy = Deploy::Done;
                    format!("{} has left after {}", gone.name, seconds(took))
                }
                (End::Told, Deploy::Awaited | Deploy::Done) | (End::ByItself, _) => {
                    format!("{} has ended by itself ({})", gone.name, gone.exit)
                }
            };
            let name = self.staff.hire()?;
            self.say(&format!("{line}, {name} takes its place")).await?;
        }
        self.forget_impossible_faults();
        let tally = self.ledger.tally();
        let is_time = matches!(self.deploy, Deploy::Awaited)
            && matches!(self.arrival, Arrival::Late | Arrival::Served)
            && !self.crash.is_awaited()
            && !self.freeze.is_awaited()
            && tally.ended_tasks * 3 >= tally.tasks;
        let victim = self.freeze.victim();
        let is_struck = |name: &str| victim.is_some_and(|victim| victim.worker == name);
        let free = self.staff.names().into_iter().find(|name| !is_struck(name));
        let Some(worker) = free.filter(|_| is_time) else { return Ok(()) };
        let since = self.windlass.store().now().await?;
        self.staff.dismiss(&worker).await;
        let line = format!("{worker} drains: it claims no more and finishes what it holds");
        self.deploy = Deploy::Draining { since };
        self.say(&line).await
    }

    /// A fault whose task has ended, in a demo that was cut off before, does not happen;
    /// one whose victim is gone has nothing more to show.
    fn forget_impossible_faults(&mut self) {
        for (fault, number) in [(&mut self.crash, CRASH_ORDER), (&mut self.freeze, FREEZE_ORDER)] {
            let task = self.ledger.find(BUSY, &key(number)).and_then(|page| page.task(LONG_TASK));
            if fault.is_awaited() && task.is_some_and(|task| task.state.is_final()) {
                *fault = Stage::Over;
            }
        }
        let names = self.staff.names();
        if self.freeze.victim().is_some_and(|victim| !names.contains(&victim.worker)) {
            self.freeze = Stage::Over;
        }
    }

    /// An order that failed is retried: its card is mended.
    async fn go_on_with_failed_order(&mut self) -> anyhow::Result<()> {
        let is_failed = |page: &Page| page.is_closed() && page.record.state == RunState::Failed;
        let Some(place) = self.ledger.pages.iter().position(is_failed) else { return Ok(()) };
        let page = &self.ledger.pages[place];
        let (handle, label) = (page.handle.clone(), label(page));
        ensure!(
            page.record.round < ROUNDS_MAX,
            coded(ErrorKind::Conflict, format!("{label} failed in {ROUNDS_MAX} rounds"))
        );
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
    async fn end(mut self) -> anyhow::Result<Told> {
        self.staff.dismiss_all().await?;
        self.ledger.refresh(self.windlass).await?;
        Ok(Told { ledger: self.ledger, refused: self.refused })
    }
}

/// The idempotency key of an order, and what people call it.
fn key(number: u32) -> String {
    format!("order-{number:02}")
}

fn label(page: &Page) -> String {
    format!("{} {}", shown(page.record.tenant.as_str()), shown(page.label()))
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
