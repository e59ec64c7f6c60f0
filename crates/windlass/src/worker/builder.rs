//! How a worker is set up, started and drained.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass_core::{Definition, QueueName, TaskKind, WorkerName};

use super::{Config, Parts, Probe, Pulse, Session};
use crate::backoff::Backoff;
use crate::duties::{self, DutyOptions, OwnDuty};
use crate::error::{Error, ErrorKind};
#[cfg(feature = "health")]
use crate::metrics::Scraper;
use crate::metrics::{Metered, Metrics};
use crate::planted::Planted;
use crate::process::Gate;
use crate::schedule::{Declared, Schedule};
use crate::store::{HandlerKey, Store, WorkerInfo, WorkerLink};
use crate::workflow::{Registration, Workflow};

/// The shortest lease: below it a pause of the garbage collector next door costs
/// tasks.
pub const LEASE_MIN: Duration = Duration::from_secs(2);

/// The longest lease, grace period and interval of a worker: ten years.
pub const SETTING_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The most slots of one worker.
pub const SLOTS_MAX: usize = 100_000;

/// A worker to be. Made by [`Windlass::worker`](crate::Windlass::worker).
///
/// | setting | default |
/// |---|---|
/// | [`slots`](WorkerBuilder::slots) | 10 |
/// | [`queues`](WorkerBuilder::queues) | all queues of the registered workflows |
/// | [`lease`](WorkerBuilder::lease) | 15 s |
/// | [`poll`](WorkerBuilder::poll) | 1 s |
/// | [`grace`](WorkerBuilder::grace) | 30 s |
/// | [`duties`](WorkerBuilder::duties) | done |
/// | [`leader_ttl`](WorkerBuilder::leader_ttl) | two thirds of the lease, from 2 s to 10 s |
/// | [`leader_rotation`](WorkerBuilder::leader_rotation) | none |
#[must_use = "a worker does nothing until it is spawned"]
pub struct WorkerBuilder {
    store: Arc<dyn Store>,
    link: Option<Arc<dyn WorkerLink>>,
    registrations: Vec<Registration>,
    queues: Option<Vec<String>>,
    /// Queues that are served besides those.
    pub(super) always_served: Vec<String>,
    /// Why the worker cannot be started, if that is known already.
    pub(super) refused: Option<Error>,
    pub(super) config: Config,
    duty_interval: Option<Duration>,
    leader_ttl: Option<Duration>,
    leader_rotation: Option<Duration>,
    schedules: Option<(String, Vec<Schedule>)>,
    pub(super) is_led: bool,
    pub(super) own_duties: Vec<OwnDuty>,
    gate: Gate,
    probe: Option<Arc<dyn Probe>>,
    planted: Planted,
    metrics: Arc<Metrics>,
    #[cfg(feature = "health")]
    pub(super) health: Option<super::health::HealthOptions>,
}

impl WorkerBuilder {
    pub(crate) fn new(store: Arc<dyn Store>, seed: u64, metrics: Arc<Metrics>) -> Self {
        let config = Config {
            name: format!("worker-{}", std::process::id()),
            slots: 10,
            queues: Arc::new([]),
            lease: Duration::from_secs(15),
            poll: Duration::from_secs(1),
            grace: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(5),
            seed,
            info: WorkerInfo {
                host: super::host::name(),
                pid: Some(std::process::id()),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..WorkerInfo::default()
            },
        };
        WorkerBuilder {
            store,
            link: None,
            registrations: Vec::new(),
            queues: None,
            always_served: Vec::new(),
            refused: None,
            config,
            duty_interval: Some(Duration::from_secs(1)),
            leader_ttl: None,
            leader_rotation: None,
            schedules: None,
            is_led: true,
            own_duties: Vec::new(),
            gate: Gate::default(),
            probe: None,
            planted: Planted::default(),
            metrics,
            #[cfg(feature = "health")]
            health: None,
        }
    }

    /// Lets the worker run the tasks of a workflow, of exactly this version.
    pub fn register<I>(self, workflow: &Workflow<I>) -> Self {
        self.registration(workflow.registration())
    }

    /// Lets the worker run the tasks of a workflow whose input type is forgotten.
    pub fn registration(mut self, registration: Registration) -> Self {
        self.registrations.push(registration);
        self
    }

    /// What people call the worker.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// The machine or container it runs on, for people to see, up to 256 bytes; what the
    /// system says if not said.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.config.info.host = host.into();
        self
    }

    /// The version of the program, for people to see, up to 256 bytes; that of Windlass if
    /// not said.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.config.info.version = version.into();
        self
    }

    /// A pair for people to see, such as `region`; up to 32 pairs, 256 bytes for each key
    /// and value.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.info.metadata.insert(key.into(), value.into());
        self
    }

    /// How many tasks it runs at once.
    pub fn slots(mut self, slots: usize) -> Self {
        self.config.slots = slots;
        self
    }

    /// The queues it serves, if not all that its workflows use.
    pub fn queues<Q: Into<String>>(mut self, queues: impl IntoIterator<Item = Q>) -> Self {
        self.queues = Some(queues.into_iter().map(Into::into).collect());
        self
    }

    /// How long after its last sign of life its tasks are taken away. It gives one
    /// three times as often.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// How often it looks for tasks when nobody hints that there are any.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.config.poll = poll;
        self
    }

    /// How long a drain may take. Handlers that still run shortly before its end
    /// are cancelled, and then dropped.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.config.grace = grace;
        self
    }

    /// How long a handler that was cancelled may go on before it is dropped, half
    /// of [`grace`](WorkerBuilder::grace) at most.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.config.cancel_grace = grace;
        self
    }

    /// How often the worker's process looks whether the background duties (promote what is
    /// due, reap dead workers) have something to do, if it leads them and cannot hear from
    /// other processes what they schedule; `None` if others do them. See
    /// [`DutyOptions::interval`](crate::DutyOptions::interval).
    pub fn duties(mut self, interval: Option<Duration>) -> Self {
        self.duty_interval = interval;
        self
    }

    /// How long after its last sign of life another process takes the background duties
    /// over from this one, at least 2 s. A worker that drains gives them up at once.
    pub fn leader_ttl(mut self, ttl: Duration) -> Self {
        self.leader_ttl = Some(ttl);
        self
    }

    /// How long this process does a background duty before it lets another one have it, see
    /// [`DutyOptions::rotation`](crate::DutyOptions::rotation).
    pub fn leader_rotation(mut self, rotation: Duration) -> Self {
        self.leader_rotation = Some(rotation);
        self
    }

    /// Declares all schedules of a program, whose workers say the same owner: they are made when the
    /// worker starts, or made what they are here, and those that an earlier version declared and
    /// this one does not are disabled. Programs with another owner have others.
    pub fn schedules(
        mut self,
        owner: impl Into<String>,
        all: impl IntoIterator<Item = Schedule>,
    ) -> Self {
        self.schedules = Some((owner.into(), all.into_iter().collect()));
        self
    }

    /// Starts the worker on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a setting outside its limits, a queue name that
    /// cannot be used, no workflow, or two definitions of one workflow and version.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn spawn(self) -> Result<WorkerHandle, Error> {
        self.spawn_with(CancellationToken::new())
    }

    /// Starts the worker, to be drained by this token.
    pub(super) fn spawn_with(self, draining: CancellationToken) -> Result<WorkerHandle, Error> {
        #[cfg(feature = "health")]
        let health = self.health.clone();
        #[cfg(feature = "health")]
        let desk = {
            let scraper = Scraper::new(Arc::clone(&self.store), Arc::clone(&self.metrics));
            (scraper, self.config.slots)
        };
        let Config { name, lease, .. } = &self.config;
        let pulse = Arc::new(Pulse::new(name, *lease, self.is_watched()));
        let (gate, run) = self.into_future(draining.clone(), Arc::clone(&pulse))?;
        #[cfg(feature = "health")]
        let (health_address, run) = {
            let health = health.map(|options| options.open(&pulse, &draining, desk)).transpose()?;
            let address = health.as_ref().map(super::health::Endpoints::address);
            let run = async move {
                let result = run.await;
                drop(health);
                result
            };
            (address, run)
        };
        Ok(WorkerHandle {
            draining,
            task: tokio::spawn(gate.wrap(run)),
            pulse,
            #[cfg(feature = "health")]
            health_address,
        })
    }

    /// Works until `shutdown` is ready, then drains. Dropping the future leaves the
    /// worker running.
    ///
    /// # Errors
    ///
    /// Those of [`spawn`](WorkerBuilder::spawn), and what made the worker give up.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let mut worker = self.spawn()?;
        tokio::select! {
            biased;
            ended = &mut worker.task => return WorkerHandle::result(ended),
            () = shutdown => {}
        }
        worker.drain().await
    }

    fn into_future(
        mut self,
        draining: CancellationToken,
        pulse: Arc<Pulse>,
    ) -> Result<(Gate, impl Future<Output = Result<(), Error>> + use<>), Error> {
        self.refused.take().map_or(Ok(()), Err)?;
        let config = self.check()?;
        let duty_options = self.duty_options();
        if let Some(options) = &duty_options {
            options.check()?;
        }
        let own_settings = self.own_settings();
        duties::check_own(&self.own_duties, &own_settings)?;
        let own_duties = self.own_duties;
        let link: Arc<dyn WorkerLink> = match self.link {
            Some(link) => link,
            None => Arc::clone(&self.store) as Arc<dyn WorkerLink>,
        };
        let link = Arc::new(Metered::new(link, Arc::clone(&self.metrics)));
        let mut registrations = BTreeMap::new();
        for registration in self.registrations {
            let undo = registration.to_undo()?;
            registrations.insert(key_of(&undo.definition), undo);
            let key = key_of(&registration.definition);
            if registrations.insert(key.clone(), registration).is_some() {
                let HandlerKey { workflow, version } = key;
                let text = format!("workflow {workflow:?} version {version} is registered twice");
                return Err(Error::new(ErrorKind::Argument, text));
            }
        }
        let parts = Parts {
            link,
            registrations: Arc::new(registrations),
            gate: self.gate.clone(),
            probe: self.probe,
            planted: self.planted,
            pulse,
        };
        let store = self.store;
        let declared = self.schedules.map(|(owner, all)| Declared::new(&owner, all)).transpose()?;
        // A worker that drains hands its duties over at once.
        let shutdown = draining.child_token();
        let process = config.name.clone();
        let session = Session::new(parts, config, draining);
        let gate = self.gate;
        let duty_gate = gate.clone();
        let run = async move {
            let stop_duties = shutdown.clone().drop_guard();
            let declares = declared.map(|declared| {
                let (store, shutdown) = (Arc::clone(&store), shutdown.clone());
                tokio::spawn(duty_gate.wrap(declare(store, declared, shutdown)))
            });
            let own = (!own_duties.is_empty()).then(|| {
                let (link, shutdown) = ((Arc::clone(&store), duty_gate.clone()), shutdown.clone());
                let run = duties::run_own(link, process, own_settings, own_duties, shutdown);
                tokio::spawn(duty_gate.wrap(run))
            });
            let duties = duty_options
                .map(|options| tokio::spawn(duty_gate.wrap(duties::run(store, options, shutdown))));
            let result = session.run().await;
            if let Err(error) = &result {
                tracing::error!(%error, "the worker gave up");
            }
            drop(stop_duties);
            if let Some(declares) = declares
                && declares.await.is_err()
            {
                tracing::error!("the declaration of schedules panicked");
            }
            if let Some(own) = own
                && own.await.is_err()
            {
                tracing::error!("the duties of the program panicked");
            }
            if let Some(duties) = duties
                && duties.await.is_err()
            {
                tracing::error!("a background duty panicked");
            }
            result
        };
        Ok((gate, run))
    }

    /// Whether somebody asks how the worker is.
    fn is_watched(&self) -> bool {
        #[cfg(feature = "health")]
        return self.health.is_some();
        #[cfg(not(feature = "health"))]
        false
    }

    pub(super) fn ttl(&self) -> Duration {
        self.leader_ttl.unwrap_or_else(|| DutyOptions::ttl_for(self.config.lease))
    }

    fn duty_options(&self) -> Option<DutyOptions> {
        Some(DutyOptions {
            interval: self.duty_interval?,
            ttl: self.ttl(),
            rotation: self.leader_rotation,
            name: self.config.name.clone(),
            // Other numbers than the worker's own.
            seed: self.config.seed.wrapping_add(0x9e37_79b9_7f4a_7c15),
            is_led: self.is_led,
            metrics: Arc::clone(&self.metrics),
            ..DutyOptions::default()
        })
    }

    fn check(&self) -> Result<Config, Error> {
        let refuse = |text: String| Err(Error::new(ErrorKind::Argument, text));
        let Config { name, slots, lease, poll, .. } = &self.config;
        if self.registrations.is_empty() {
            return refuse(format!("worker {name:?} has no workflow registered"));
        }
        if *slots == 0 || *slots > SLOTS_MAX {
            return refuse(format!("slots is {slots}, not within 1 to {SLOTS_MAX}"));
        }
        if *lease < LEASE_MIN {
            return refuse(format!("lease is {lease:?}, the least is {LEASE_MIN:?}"));
        }
        let Config { grace, cancel_grace, .. } = &self.config;
        let times = [
            ("lease", Some(*lease)),
            ("poll", Some(*poll)),
            ("grace", Some(*grace)),
            ("cancel_grace", Some(*cancel_grace)),
            ("duties", self.duty_interval),
        ];
        for (setting, time) in times {
            if let Some(time) = time.filter(|time| *time > SETTING_MAX) {
                return refuse(format!("{setting} is {time:?}, the limit is {SETTING_MAX:?}"));
            }
        }
        WorkerName::new(name)?;
        if poll.is_zero() || self.duty_interval.is_some_and(|interval| interval.is_zero()) {
            return refuse("an interval of zero would never pause".to_owned());
        }
        let mut config = self.config.clone();
        config.cancel_grace = config.cancel_grace.min(config.grace / 2);
        config.queues = match &self.queues {
            Some(names) if names.is_empty() => {
                return refuse(format!("worker {name:?} serves no queue"));
            }
            Some(names) => {
                let all: BTreeSet<_> = names.iter().chain(&self.always_served).collect();
                all.into_iter().map(QueueName::new).collect::<Result<_, _>>()?
            }
            None => self.all_queues().into_iter().collect(),
        };
        config.info.queues = config.queues.to_vec();
        if let Err(text) = config.info.check() {
            return refuse(text);
        }
        Ok(config)
    }

    /// The queues of all tasks that the registered workflows have handlers for.
    fn all_queues(&self) -> BTreeSet<QueueName> {
        let tasks = self.registrations.iter().flat_map(|r| r.definition.tasks());
        let claimable = tasks.filter(|task| match task.kind {
            TaskKind::Handler | TaskKind::OnFailure => true,
            TaskKind::Sleep(_) => false,
        });
        claimable.map(|task| task.queue.clone()).collect()
    }
}

/// Declares schedules, and tries again while the store is away.
async fn declare(store: Arc<dyn Store>, declared: Declared, shutdown: CancellationToken) {
    let mut backoff = Backoff::default();
    let mut is_told = false;
    loop {
        let answer = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            answer = declared.declare(&*store) => answer,
        };
        let Err(error) = answer else { return };
        // Someone may mend the token.
        let is_refused = matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::Unauthenticated);
        if !error.is_retryable() && !is_refused {
            tracing::error!(%error, "schedules were not declared");
            return;
        }
        let pause = backoff.next_pause();
        match is_refused && std::mem::replace(&mut is_told, is_refused) {
            false => tracing::warn!(%error, ?pause, "schedules could not be declared"),
            true => tracing::debug!(%error, ?pause, "schedules could not be declared"),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn key_of(definition: &Definition) -> HandlerKey {
    HandlerKey { workflow: definition.name().clone(), version: definition.version() }
}

#[cfg(feature = "testing")]
impl WorkerBuilder {
    /// Lets the worker talk to another link than its store.
    pub(crate) fn link(mut self, link: Arc<dyn WorkerLink>) -> Self {
        self.link = Some(link);
        self
    }

    /// Makes the worker part of a process that can be killed and frozen.
    pub(crate) fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Tells someone where the worker is.
    pub(crate) fn probe(mut self, probe: Arc<dyn Probe>) -> Self {
        self.probe = Some(probe);
        self
    }

    /// Where the worker's jitter and ids come from.
    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Lets the worker do the background duties whoever else does, instead of one that
    /// leads.
    pub(crate) fn unled(mut self) -> Self {
        self.is_led = false;
        self
    }

    /// Gives the worker a deliberate bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(mut self, bug: Option<crate::PlantedBug>) -> Self {
        self.planted = Planted::new(bug);
        self
    }
}

/// A worker at work. Dropping the handle leaves the worker running.
#[derive(Debug)]
pub struct WorkerHandle {
    pub(super) draining: CancellationToken,
    pub(super) task: JoinHandle<Option<Result<(), Error>>>,
    #[cfg_attr(not(unix), expect(dead_code))]
    pub(super) pulse: Arc<Pulse>,
    #[cfg(feature = "health")]
    pub(super) health_address: Option<std::net::SocketAddr>,
}

impl WorkerHandle {
    /// Tells the worker to stop claiming and to end, without waiting for it.
    pub fn begin_drain(&self) {
        self.draining.cancel();
    }

    /// Drains the worker: no more claims, its tasks end or are handed back, its
    /// lease is kept until then. Returns within the grace period.
    ///
    /// # Errors
    ///
    /// What made the worker give up before.
    pub async fn drain(self) -> Result<(), Error> {
        self.begin_drain();
        self.ended().await
    }

    /// Waits until the worker has ended.
    ///
    /// # Errors
    ///
    /// What made it give up, such as a workflow that is registered with another
    /// shape.
    pub async fn ended(self) -> Result<(), Error> {
        WorkerHandle::result(self.task.await)
    }

    pub(super) fn result(
        ended: Result<Option<Result<(), Error>>, tokio::task::JoinError>,
    ) -> Result<(), Error> {
        match ended {
            // `None`: its process was killed by the test kit.
            Ok(result) => result.unwrap_or(Ok(())),
            Err(error) => Err(Error::new(ErrorKind::Corrupt, format!("the worker {error}"))),
        }
    }
}
