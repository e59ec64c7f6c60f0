//! The worker processes, and what is done to them.

use std::sync::Arc;
use std::time::Duration;

use windlass::testing::Process;
use windlass::worker::LEASE_MIN;
use windlass::{Error, Windlass, WorkerHandle, Workflow};

use crate::dice::Dice;
use crate::duties;
use crate::faults::FaultKind;
use crate::input::Input;
use crate::scenario::{DUTY_INTERVAL_MAX, LEADER_TTL_MAX, LEASE_MAX, POLL_MAX, Style};
use crate::store::FaultyStore;
use crate::world::{Cut, Site, SiteId, World};

/// The longest grace period of a drain.
const GRACE_MAX: Duration = Duration::from_secs(16);

/// How long after its grace period a drained process is waited for. The promise
/// has no such margin; a request that is under way may take it on a good day.
const GRACE_MARGIN: Duration = Duration::from_millis(100);

/// How a worker process is set up.
struct Setup {
    slots: usize,
    lease: Duration,
    poll: Duration,
    duties: Option<Duration>,
    leader_ttl: Duration,
    leader_rotation: Option<Duration>,
    grace: Duration,
    cancel_grace: Duration,
    knows: Vec<usize>,
    queue: Option<&'static str>,
    is_calm: bool,
}

impl Setup {
    fn draw(world: &World, dice: &mut Dice) -> Setup {
        let scenario = &world.scenario;
        let lease = LEASE_MIN + dice.up_to(LEASE_MAX - LEASE_MIN);
        let all: Vec<usize> = (0..scenario.workflows.len()).collect();
        let mut knows = all.clone();
        if scenario.is_rolling && dice.chance(0.6) {
            knows.retain(|_| dice.chance(0.6));
            if knows.is_empty() {
                knows.push(dice.pick(&all));
            }
        }
        let queue = (scenario.is_rolling && dice.chance(0.15)).then(|| dice.pick(&["red", "blue"]));
        Setup {
            slots: dice.count(1..=scenario.slots_max),
            lease,
            poll: dice.millis(500..=POLL_MAX.as_millis() as u64),
            duties: dice
                .chance(0.8)
                .then(|| dice.millis(500..=DUTY_INTERVAL_MAX.as_millis() as u64)),
            leader_ttl: dice.millis(2_000..=LEADER_TTL_MAX.as_millis() as u64),
            leader_rotation: dice.chance(0.3).then(|| LEADER_TTL_MAX + dice.up_to(LEADER_TTL_MAX)),
            grace: dice.millis(6_000..=GRACE_MAX.as_millis() as u64),
            cancel_grace: dice.millis(500..=3_000),
            knows,
            queue,
            is_calm: dice.chance(0.25),
        }
    }

    /// A process that can do everything that is left to be done.
    fn complete(world: &World, dice: &mut Dice) -> Setup {
        Setup {
            knows: (0..world.scenario.workflows.len()).collect(),
            queue: None,
            duties: Some(DUTY_INTERVAL_MAX),
            is_calm: true,
            ..Setup::draw(world, dice)
        }
    }

    fn is_complete(&self, world: &World) -> bool {
        let knows_all = self.knows.len() == world.scenario.workflows.len();
        knows_all && self.queue.is_none() && self.duties.is_some()
    }
}

/// A worker process at work.
pub(crate) struct Member {
    site: SiteId,
    process: Process,
    handle: WorkerHandle,
    grace: Duration,
    is_calm: bool,
    is_complete: bool,
}

impl Member {
    fn hire(
        world: &Arc<World>,
        workflows: &[Workflow<Input>],
        setup: &Setup,
        dice: &mut Dice,
    ) -> Result<Member, Error> {
        let process = Process::new();
        let site = world.add_site(Site {
            is_calm: setup.is_calm,
            born_at: world.elapsed(),
            knows: setup.knows.clone(),
            slots: setup.slots,
            ..Site::default()
        });
        let is_partial = setup.knows.len() < workflows.len() || setup.queue.is_some();
        if is_partial {
            let what = || format!("site {} knows {:?}, {:?}", site.0, setup.knows, setup.queue);
            world.fault(FaultKind::PartialDeploy, what);
        } else {
            world.trace(|| format!("site {} starts, calm: {}", site.0, setup.is_calm));
        }
        let store = Arc::new(FaultyStore::new(Arc::clone(world), site, Some(process.clone())));
        let windlass = Windlass::with_store(store.clone());
        let mut worker = windlass
            .worker()
            .name(format!("site-{}", site.0))
            .slots(setup.slots)
            .lease(setup.lease)
            .poll(setup.poll)
            .grace(setup.grace)
            .cancel_grace(setup.cancel_grace)
            .duties(setup.duties)
            .leader_ttl(setup.leader_ttl)
            .through(store)
            .in_process(&process)
            .seeded(dice.number())
            .plant(world.bug);
        for place in &setup.knows {
            worker = worker.register(&workflows[*place]);
        }
        for plan in &world.scenario.duties {
            let (world, told) = (Arc::clone(world), plan.clone());
            let work = move |ctx| duties::work(Arc::clone(&world), told.clone(), ctx);
            worker = worker.duty(&plan.name, plan.every, work);
        }
        if let Some(rotation) = setup.leader_rotation {
            worker = worker.leader_rotation(rotation);
        }
        if let Some(queue) = setup.queue {
            worker = worker.queues([queue]);
        }
        let handle = worker.spawn()?;
        let is_complete = setup.is_complete(world);
        let (grace, is_calm) = (setup.grace, setup.is_calm);
        Ok(Member { site, process, handle, grace, is_calm, is_complete })
    }

    /// Whether it can do everything that is left to be done.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete && !self.process.is_dead()
    }

    /// Ends the process at once, and sees whether its worker had given up.
    pub(crate) async fn kill(self, world: &World) {
        self.process.kill();
        if let Err(error) = self.handle.ended().await {
            let text = format!("the worker of site {} gave up: {error}", self.site.0);
            world.violate("G1 workers go on", text);
        }
    }

    /// Drains the process, and holds it to its word (G19) if nothing is done to it
    /// meanwhile.
    async fn drain(self, world: &World, dice: &mut Dice) {
        let told_at = world.elapsed();
        world.fault(FaultKind::Drain, || format!("site {}", self.site.0));
        world.change_site(self.site, |site| site.drained_at = Some(told_at));
        self.handle.begin_drain();
        let limit = if self.is_calm {
            self.grace + GRACE_MARGIN
        } else if dice.chance(0.4) {
            // Someone loses patience.
            dice.up_to(self.grace)
        } else {
            3 * GRACE_MAX
        };
        let ended = tokio::time::timeout(limit, self.handle.ended()).await;
        world.trace(|| format!("site {} ended: {ended:?}", self.site.0));
        self.process.kill();
        let was_out = world
            .scenario
            .faults
            .outages
            .iter()
            .any(|(from, to)| *from <= world.elapsed() && told_at < *to);
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let text = format!("the worker of site {} gave up: {error}", self.site.0);
                world.violate("G1 workers go on", text);
            }
            Err(_) if self.is_calm && !was_out => {
                let text = format!("site {} did not end within {:?}", self.site.0, self.grace);
                world.violate("G19 a drain ends within its grace", text);
            }
            Err(_) => {}
        }
    }
}

/// What is done to a process.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Kill,
    Crash,
    Freeze,
    CutOff,
    Drain,
}

/// Keeps one post staffed until faults stop; the process that is there then.
///
/// # Errors
///
/// If a worker cannot be set up, which is a mistake of the scenario.
pub(crate) async fn staff(
    world: Arc<World>,
    workflows: Arc<[Workflow<Input>]>,
    mut dice: Dice,
) -> Result<Option<Member>, Error> {
    while !world.is_healed() {
        let setup = Setup::draw(&world, &mut dice);
        let member = Member::hire(&world, &workflows, &setup, &mut dice)?;
        if let Some(member) = trouble(&world, member, &mut dice).await {
            return Ok(Some(member));
        }
        let vacancy = match world.scenario.style {
            Style::Mixed | Style::Backlog => 6_000,
            Style::Storm => 300,
        };
        if !world.sleep_within_faults(dice.millis(0..=vacancy)).await {
            break;
        }
    }
    Ok(None)
}

/// A process that knows everything and to which nothing happens.
///
/// # Errors
///
/// If a worker cannot be set up, which is a mistake of the scenario.
pub(crate) fn relief(
    world: &Arc<World>,
    workflows: &[Workflow<Input>],
    dice: &mut Dice,
) -> Result<Member, Error> {
    Member::hire(world, workflows, &Setup::complete(world, dice), dice)
}

/// Makes trouble for a process until faults stop or it has ended.
async fn trouble(world: &World, member: Member, dice: &mut Dice) -> Option<Member> {
    loop {
        let pause = dice.up_to(2 * world.scenario.peace);
        if !world.sleep_within_faults(pause).await {
            return Some(member);
        }
        let site = member.site.0;
        match next_trouble(world, &member, dice) {
            Trouble::Kill => {
                world.fault(FaultKind::Kill, || format!("site {site}"));
                member.kill(world).await;
                return None;
            }
            Trouble::Crash => {
                let most = dice.pick(&[10, 120]);
                let polls = dice.count(0..=most) as u64;
                world.fault(FaultKind::Crash, || format!("site {site} after {polls} polls"));
                member.process.die_after_polls(polls);
                while !member.process.is_dead() {
                    if !world.sleep_within_faults(Duration::from_millis(250)).await {
                        member.process.die_after_polls(u64::MAX);
                        return Some(member);
                    }
                }
                member.kill(world).await;
                return None;
            }
            Trouble::Freeze => {
                let time = dice.up_to(3 * LEASE_MAX);
                world.fault(FaultKind::Freeze, || format!("site {site} for {time:?}"));
                member.process.freeze();
                world.sleep_within_faults(time).await;
                world.trace(|| format!("site {site} thaws"));
                member.process.thaw();
            }
            Trouble::CutOff => {
                let until = world.elapsed() + dice.up_to(2 * LEASE_MAX);
                let cut = dice.pick(&[Cut::Requests, Cut::Answers]);
                world.fault(FaultKind::CutOff, || format!("site {site}, {cut:?} until {until:?}"));
                world.change_site(member.site, |site| site.cut = Some((until, cut)));
            }
            Trouble::Drain => {
                member.drain(world, dice).await;
                return None;
            }
        }
    }
}

fn next_trouble(world: &World, member: &Member, dice: &mut Dice) -> Trouble {
    if member.is_calm {
        return Trouble::Drain;
    }
    match world.scenario.style {
        Style::Storm => dice.pick(&[Trouble::Kill, Trouble::Crash, Trouble::Crash, Trouble::Drain]),
        Style::Mixed => dice.pick(&[
            Trouble::Kill,
            Trouble::Crash,
            Trouble::Crash,
            Trouble::Freeze,
            Trouble::CutOff,
            Trouble::Drain,
        ]),
        // A backlog is to be worked off, or there is nothing to be fair about.
        Style::Backlog => dice.pick(&[Trouble::Kill, Trouble::Drain, Trouble::Drain]),
    }
}
