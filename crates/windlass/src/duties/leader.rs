//! One process's part in the duties: to campaign, and to lead what it was given.
//!
//! Whoever leads nothing asks about when the leader's time to live ends, and at once when
//! it is hinted that a duty was given up. Whoever leads renews its terms three times per
//! time to live, asks with the same request when something is due, and sleeps until then or
//! until it is hinted that something is due earlier. Whoever leads and rotates is asked for its
//! duties when its time is over, and learns by its next sweep or renewal that it was replaced.
//!
//! Nothing here is needed to be safe: the store refuses the sweeps of a term that is over.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use windlass_core::{CandidateId, Term, Timestamp};

use super::{DutyOptions, LOOK_PAUSE_MAX};
use crate::backoff::Backoff;
use crate::clock::{Clock as _, RuntimeClock};
use crate::store::{
    Candidacy, Duty, Hints, LeaderRecord, Mandate, Outlook, Store, StoreError, Sweep, Tallies,
};

/// How many times longer a leader sleeps that hears what others schedule.
const HEARD: u32 = 5;

/// How soon after a look the next hint makes it look again: many that come together are
/// served by one.
const HINT_PAUSE: Duration = Duration::from_millis(20);

/// A leader writes its row no more often: each write leaves a dead row behind.
const RENEW_PAUSE: Duration = Duration::from_secs(1);

/// How soon at the latest a new leader does what takes long.
const FIRST_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How far the leader of what is due may be behind before those who do not lead it help.
const HELP_AFTER: Duration = Duration::from_secs(2);

/// How soon a candidate asks again that could have been given a duty and was not: someone
/// else is about to have it.
const RIVAL_PAUSE: Duration = Duration::from_millis(100);

/// Candidates that wait for the same end come within this time of it, and within a tenth of
/// the time to live.
const SPREAD_MAX: Duration = Duration::from_millis(500);

/// How long a candidate that ends tries to give up what it leads.
const RESIGN_MAX: Duration = Duration::from_secs(1);

/// A duty as this process sees it.
struct Post {
    duty: Duty,
    /// The term in which this process leads it, if it does.
    term: Option<Term>,
    /// When to sweep, if that is known; of meaning to a leader only.
    sweep_at: Option<Instant>,
    /// What is known to be due first, by the store's clock.
    due: Option<Timestamp>,
    /// When it was last swept: what was due before and is left is in the hands of others.
    swept_at: Option<Timestamp>,
    backoff: Backoff,
}

/// A sweep that takes long, beside the others.
type Aside = Pin<Box<dyn Future<Output = Swept> + Send>>;

/// A sweep that was answered.
struct Swept {
    place: usize,
    term: Term,
    answer: Result<Sweep, StoreError>,
    took: Duration,
}

impl Post {
    fn new(duty: Duty) -> Self {
        Post {
            duty,
            term: None,
            sweep_at: None,
            due: None,
            swept_at: None,
            backoff: Backoff::default(),
        }
    }

    fn expect(&mut self, at: Option<Instant>) {
        self.sweep_at = [self.sweep_at, at].into_iter().flatten().min();
    }
}

/// A candidate for all duties.
pub(super) struct Leader {
    store: Arc<dyn Store>,
    candidate: CandidateId,
    options: DutyOptions,
    rng: fastrand::Rng,
    posts: [Post; Duty::ALL.len()],
    /// The sweeps that are under way beside the others.
    asides: [Option<Aside>; Duty::ALL.len()],
    /// Whether the leader of what is due needs help.
    is_behind: bool,
    /// What was done and is not written down yet.
    tallies: Tallies,
    timers: Hints,
    vacancies: Hints,
    /// When to campaign or to renew.
    lead_at: Instant,
    /// When the last candidacy was answered.
    led_at: Option<Instant>,
    /// Whether a candidacy was not answered: this process may lead and not know it.
    is_unsure: bool,
    lead_backoff: Backoff,
    /// When to look whether something is due; of meaning to a leader only.
    look_at: Instant,
    looked_at: Instant,
    /// The store's clock, as the last answer told it.
    clock: Option<RuntimeClock>,
}

impl Leader {
    pub(super) fn new(store: Arc<dyn Store>, options: DutyOptions) -> Self {
        let mut rng = fastrand::Rng::with_seed(options.seed);
        let now = Instant::now();
        Leader {
            candidate: CandidateId::from_random(rng.u128(..)),
            timers: store.timer_hints(),
            vacancies: store.leader_hints(),
            store,
            options,
            rng,
            posts: Duty::ALL.map(Post::new),
            asides: Duty::ALL.map(|_| None),
            is_behind: false,
            tallies: Tallies::new(),
            lead_at: now,
            led_at: None,
            is_unsure: false,
            lead_backoff: Backoff::default(),
            look_at: now,
            looked_at: now,
            clock: None,
        }
    }

    /// Campaigns and leads for ever.
    pub(super) async fn run(&mut self) -> Infallible {
        loop {
            let now = Instant::now();
            if now >= self.lead_at {
                self.lead().await;
            } else if self.leads() && now >= self.look_at {
                self.look().await;
            }
            if std::mem::take(&mut self.is_behind) {
                self.help().await;
            }
            for place in 0..self.posts.len() {
                self.sweep(place).await;
            }
            self.wait().await;
        }
    }

    fn leads(&self) -> bool {
        self.posts.iter().any(|post| post.term.is_some())
    }

    async fn wait(&mut self) {
        let leads = self.leads();
        let sweeps = self.posts.iter().zip(&self.asides).filter(|(_, aside)| aside.is_none());
        let sweeps = sweeps.filter(|(post, _)| post.term.is_some());
        let sweep_at = sweeps.filter_map(|(post, _)| post.sweep_at).min();
        let look_at = leads.then_some(self.look_at);
        let wake_at = [Some(self.lead_at), look_at, sweep_at].into_iter().flatten().min();
        tokio::select! {
            biased;
            swept = next(&mut self.asides) => self.take(swept),
            () = self.vacancies.changed() => {
                // Also if it was this process that gave it up, and would have it back.
                self.lead_at = self.lead_at.min(Instant::now());
            }
            () = self.timers.changed(), if leads => {
                let soon = Instant::now().max(self.looked_at + HINT_PAUSE);
                self.look_at = self.look_at.min(soon);
            }
            () = sleep_until(wake_at.unwrap_or(self.lead_at)) => {}
        }
    }

    /// Campaigns for what nobody leads, and renews what this process does.
    async fn lead(&mut self) {
        self.vacancies.take();
        self.timers.take();
        let began = Instant::now();
        let candidacy = Candidacy {
            candidate: self.candidate,
            name: self.options.name.clone(),
            ttl: self.options.ttl,
            rotation: self.options.rotation,
            tallies: self.tallies.clone(),
        };
        self.is_unsure = true;
        let standing = match self.store.lead(candidacy).await {
            Ok(standing) => standing,
            Err(error) => {
                let pause = self.lead_backoff.next_pause();
                tracing::warn!(%error, ?pause, "could not campaign for background duties");
                self.lead_at = Instant::now() + pause;
                // A look would be another candidacy.
                self.look_at = self.look_at.max(self.lead_at);
                return;
            }
        };
        self.is_unsure = false;
        self.lead_backoff.reset();
        self.led_at = Some(began);
        let is_written = |leader: &LeaderRecord| leader.is_led_by(self.candidate);
        for leader in standing.leaders.iter().filter(|leader| is_written(leader)) {
            self.tallies.remove(&leader.duty);
        }
        let now = Instant::now();
        let at = standing.outlook.at;
        self.clock = Some(RuntimeClock::starting_at(at));
        self.lead_at = now + self.options.ttl;
        for leader in &standing.leaders {
            let next = match leader.is_led_by(self.candidate) {
                true => {
                    let renew_at = began + self.jittered(self.options.ttl / 3);
                    // Whoever waits for it to make room asks just after that.
                    let left = leader.holder.as_ref().and_then(|it| it.rotates_at);
                    let left = left.map(|at_last| at_last.since(at)).filter(|it| !it.is_zero());
                    left.map_or(renew_at, |left| renew_at.min(now + left))
                }
                false => now + self.until_free(leader, at),
            };
            self.lead_at = self.lead_at.min(next.max(now + RIVAL_PAUSE));
            self.appoint(leader, now);
        }
        self.foresee(&standing.outlook, now);
    }

    /// How long a candidate that was not given a duty waits before it asks again.
    fn until_free(&mut self, leader: &LeaderRecord, at: Timestamp) -> Duration {
        let until = leader.holder.as_ref().filter(|_| !leader.is_free(at));
        let left = until.map_or(Duration::ZERO, |holder| holder.replaceable_at().since(at));
        let spread = (self.options.ttl / 10).min(SPREAD_MAX);
        left.min(self.options.ttl) + spread.mul_f64(self.rng.f64())
    }

    /// Takes note of who leads a duty now.
    fn appoint(&mut self, leader: &LeaderRecord, now: Instant) {
        let term = leader.is_led_by(self.candidate).then_some(leader.term);
        let Some(post) = self.posts.iter_mut().find(|post| post.duty == leader.duty) else {
            return;
        };
        if post.term == term {
            return;
        }
        let metrics = self.options.metrics.duty(post.duty);
        if post.term.is_some() {
            metrics.leads_no_more.add(1);
        }
        match term {
            Some(term) => {
                metrics.terms.add(1);
                tracing::info!(duty = %post.duty, %term, "leads");
            }
            None => tracing::info!(duty = %post.duty, "leads no more"),
        }
        // A new leader sweeps at once: nobody may have for a while. What takes long has time: a
        // fleet that has just begun has other things to do.
        let pause = match takes_long(post.duty) {
            true => post.duty.every().unwrap_or_default().min(FIRST_PAUSE_MAX),
            false => Duration::ZERO,
        };
        *post = Post { term, sweep_at: term.map(|_| now + pause), ..Post::new(post.duty) };
    }

    /// Looks whether something is due, and renews with it if that may be written.
    async fn look(&mut self) {
        if self.led_at.is_none_or(|at| at.elapsed() >= RENEW_PAUSE.min(self.options.ttl / 3)) {
            return self.lead().await;
        }
        self.timers.take();
        match self.store.outlook().await {
            Ok(outlook) => self.foresee(&outlook, Instant::now()),
            Err(error) => {
                tracing::warn!(%error, "could not look whether something is due");
                self.look_at = Instant::now() + self.lead_backoff.next_pause();
            }
        }
    }

    /// Takes note of when something is due.
    fn foresee(&mut self, outlook: &Outlook, now: Instant) {
        self.looked_at = now;
        let times = if self.store.hears_hints() { HEARD } else { 1 };
        let pause = self.options.interval.saturating_mul(times).min(LOOK_PAUSE_MAX);
        self.look_at = now + self.jittered(pause);
        for post in &mut self.posts {
            let due = outlook.next_at(post.duty);
            if due.is_some() {
                post.due = due.max(post.swept_at);
            }
            post.expect(due.map(|at| now + at.since(outlook.at)));
            let late = due.map_or(Duration::ZERO, |due| outlook.at.since(due));
            let is_led_by_another = post.duty == Duty::PromoteDue && post.term.is_none();
            self.is_behind |= is_led_by_another && late > HELP_AFTER;
        }
    }

    /// Does what is due for a leader that is behind, until it is not. Sweeps are right however
    /// many do them: each takes what nobody else has.
    async fn help(&mut self) {
        let (duty, mut moved) = (Duty::PromoteDue, 0);
        while Instant::now() < self.lead_at {
            match self.store.promote_due(duty.batch()).await {
                // What is due and cannot be moved is in the hands of others.
                Ok(sweep) if sweep.moved == 0 => break,
                Ok(sweep) => {
                    self.options.metrics.duty(duty).helped.add(1);
                    moved += sweep.moved;
                    let is_behind = |next: Timestamp| sweep.at.since(next) > HELP_AFTER;
                    // With less than a batch, it is not the number that holds the leader up.
                    let is_much = sweep.moved >= duty.batch();
                    if !is_much || !sweep.next_at.is_some_and(is_behind) {
                        break;
                    }
                }
                Err(error) => {
                    tracing::warn!(%duty, %error, "could not help");
                    break;
                }
            }
        }
        if moved > 0 {
            tracing::info!(%duty, moved, "helped a leader that was behind");
        }
    }

    /// Does a duty once, if this process leads it and something is due.
    async fn sweep(&mut self, place: usize) {
        let post = &self.posts[place];
        let is_due = post.sweep_at.is_some_and(|at| at <= Instant::now());
        let (Some(term), true) = (post.term, is_due) else { return };
        let duty = post.duty;
        if self.asides[place].is_some() {
            return;
        }
        let mandate = Mandate { duty, candidate: self.candidate, term };
        let store = Arc::clone(&self.store);
        let sweep = async move {
            let began = Instant::now();
            let answer = store.sweep(mandate, duty.batch()).await;
            Swept { place, term, answer, took: began.elapsed() }
        };
        if takes_long(duty) {
            self.asides[place] = Some(Box::pin(sweep));
        } else {
            let swept = sweep.await;
            self.take(swept);
        }
    }

    /// Takes the answer to a sweep.
    fn take(&mut self, swept: Swept) {
        let Swept { place, term, answer, took } = swept;
        if let Ok(sweep) = &answer {
            self.clock = Some(RuntimeClock::starting_at(sweep.at));
        }
        let now = Instant::now();
        let post = &mut self.posts[place];
        let duty = post.duty;
        let metrics = self.options.metrics.duty(duty);
        metrics.seconds.observe(took.as_secs_f64());
        let tally = self.tallies.entry(duty).or_default();
        tally.busy += took;
        tally.last_took = Some(took);
        let is_current = post.term == Some(term);
        match answer {
            Ok(sweep) => {
                metrics.items.add(sweep.moved as u64);
                tally.runs += 1;
                tally.items += sweep.moved as u64;
                tally.last_run_at = Some(sweep.at);
                if !is_current {
                    return;
                }
                if let Some(due) = post.due.take().filter(|_| sweep.moved > 0)
                    && duty == Duty::PromoteDue
                {
                    self.options.metrics.note_lateness(sweep.at.since(due));
                }
                post.due = sweep.next_at;
                post.swept_at = Some(sweep.at);
                post.backoff.reset();
                // What is due at this very moment may already have been swept.
                post.sweep_at = sweep.next_at.map(|at| now + at.since(sweep.at));
                post.expect(duty.every().map(|pause| now + pause));
            }
            Err(StoreError::TermOver { .. }) if is_current => {
                tracing::info!(%duty, %term, "leads no more");
                metrics.leads_no_more.add(1);
                *post = Post::new(duty);
                // Who does is to be known, to be asked again in time.
                self.lead_at = self.lead_at.min(now + RIVAL_PAUSE);
            }
            Err(StoreError::TermOver { .. }) => {}
            Err(error) => {
                metrics.errors.add(1);
                match &self.clock {
                    Some(clock) => tally.note_error_at(clock.now(), &error),
                    None => tally.note_error(&error),
                }
                let pause = post.backoff.next_pause();
                // What an audit found does not go away by the next one.
                let pause = if takes_long(duty) { duty.every().unwrap_or(pause) } else { pause };
                tracing::warn!(%duty, %error, ?pause, "sweep failed");
                if is_current {
                    post.sweep_at = Some(now + pause);
                }
            }
        }
    }

    /// Gives up what this process leads, or may lead, for others to take over at once.
    pub(super) async fn resign(mut self) {
        if !self.leads() && !self.is_unsure {
            return;
        }
        for post in self.posts.iter().filter(|post| post.term.is_some()) {
            self.options.metrics.duty(post.duty).leads_no_more.add(1);
        }
        let tallies = std::mem::take(&mut self.tallies);
        match timeout(RESIGN_MAX, self.store.resign(self.candidate, tallies)).await {
            Ok(Ok(())) => tracing::info!("gave up the background duties"),
            Ok(Err(error)) => tracing::warn!(%error, "could not give up the background duties"),
            Err(_) => tracing::warn!("could not give up the background duties in time"),
        }
    }

    /// Three quarters of the time to all of it, so that processes do not march in step.
    fn jittered(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(1.0 - self.rng.f64() / 4.0)
    }
}

/// Whether sweeps of a duty may take so long that the others do not wait for them.
const fn takes_long(duty: Duty) -> bool {
    match duty {
        Duty::Rollup | Duty::Audit => true,
        Duty::PromoteDue | Duty::Reap | Duty::Prune | Duty::Schedules => false,
    }
}

/// The answer of a sweep that is under way beside the others; never, if there is none.
async fn next(asides: &mut [Option<Aside>]) -> Swept {
    std::future::poll_fn(|context| {
        for aside in asides.iter_mut() {
            let Some(sweep) = aside else { continue };
            if let Poll::Ready(swept) = sweep.as_mut().poll(context) {
                *aside = None;
                return Poll::Ready(swept);
            }
        }
        Poll::Pending
    })
    .await
}
