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
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use windlass_core::{CandidateId, Term, Timestamp};

use super::{DutyOptions, LOOK_PAUSE_MAX, SWEEP_MAX};
use crate::backoff::Backoff;
use crate::store::{
    Candidacy, Duty, Hints, LeaderRecord, Mandate, Outlook, Store, StoreError, Tallies,
};

/// How many times longer a leader sleeps that hears what others schedule.
const HEARD: u32 = 5;

/// How soon after a look the next hint makes it look again: many that come together are
/// served by one.
const HINT_PAUSE: Duration = Duration::from_millis(20);

/// A leader writes its row no more often: each write leaves a dead row behind.
const RENEW_PAUSE: Duration = Duration::from_secs(1);

/// How often dead workers are looked for even if no lease ends: there are also those to
/// forget that held nothing.
const REAP_EVERY: Duration = Duration::from_secs(60);

/// How soon after a pass over all runs that may be old enough the next one begins.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

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
    backoff: Backoff,
}

impl Post {
    fn new(duty: Duty) -> Self {
        Post { duty, term: None, sweep_at: None, backoff: Backoff::default() }
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
            tallies: Tallies::new(),
            lead_at: now,
            led_at: None,
            is_unsure: false,
            lead_backoff: Backoff::default(),
            look_at: now,
            looked_at: now,
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
        let sweeps = self.posts.iter().filter(|post| post.term.is_some());
        let sweep_at = sweeps.filter_map(|post| post.sweep_at).min();
        let look_at = leads.then_some(self.look_at);
        let wake_at = [Some(self.lead_at), look_at, sweep_at].into_iter().flatten().min();
        tokio::select! {
            biased;
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
        match term {
            Some(term) => tracing::info!(duty = %post.duty, %term, "leads"),
            None => tracing::info!(duty = %post.duty, "leads no more"),
        }
        // A new leader sweeps at once: nobody may have for a while.
        *post = Post { term, sweep_at: term.map(|_| now), ..Post::new(post.duty) };
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
            post.expect(outlook.next_at(post.duty).map(|at| now + at.since(outlook.at)));
        }
    }

    /// Does a duty once, if this process leads it and something is due.
    async fn sweep(&mut self, place: usize) {
        let post = &mut self.posts[place];
        let is_due = post.sweep_at.is_some_and(|at| at <= Instant::now());
        let (Some(term), true) = (post.term, is_due) else { return };
        let duty = post.duty;
        let mandate = Mandate { duty, candidate: self.candidate, term };
        let answer = self.store.sweep(mandate, SWEEP_MAX).await;
        let now = Instant::now();
        let tally = self.tallies.entry(duty).or_default();
        match answer {
            Ok(sweep) => {
                tally.runs += 1;
                tally.items += sweep.moved as u64;
                tally.last_run_at = Some(sweep.at);
                post.backoff.reset();
                // What is due at this very moment may already have been swept.
                post.sweep_at = sweep.next_at.map(|at| now + at.since(sweep.at));
                match duty {
                    Duty::PromoteDue | Duty::Schedules => {}
                    Duty::Reap => post.expect(Some(now + REAP_EVERY)),
                    Duty::Prune => post.expect(Some(now + PRUNE_EVERY)),
                }
            }
            Err(StoreError::TermOver { .. }) => {
                tracing::info!(%duty, %term, "leads no more");
                *post = Post::new(duty);
                // Who does is to be known, to be asked again in time.
                self.lead_at = self.lead_at.min(now + RIVAL_PAUSE);
            }
            Err(error) => {
                tally.note_error(&error);
                let pause = post.backoff.next_pause();
                tracing::warn!(%duty, %error, ?pause, "sweep failed");
                post.sweep_at = Some(now + pause);
            }
        }
    }

    /// Gives up what this process leads, or may lead, for others to take over at once.
    pub(super) async fn resign(mut self) {
        if !self.leads() && !self.is_unsure {
            return;
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
