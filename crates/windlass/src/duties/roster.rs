//! One process's part in the duties of its program: to ask for what is due, and to do what it was
//! given.
//!
//! Whoever is at nothing sleeps until the next of its duties is due, as far as it was told, asks a
//! little later than that, and is told who is at it or when it is due again: a process costs the
//! store one statement for each time of a duty. Whoever is at a duty renews its lease three times
//! per time to live and ends its handler before the lease is over if it cannot.
//!
//! Nothing here is needed to be safe: the store gives a duty to one process at a time, and refuses
//! the end of a term that is over.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use windlass_core::{CandidateId, Outcome, Timestamp};

use super::own::{DutyCtx, Handler, HandlerFuture, OwnSettings};
use crate::backoff::Backoff;
use crate::process::Gate;
use crate::store::{
    DutyClaim, DutyDeclaration, DutyEnd, DutyMandate, DutyOutcome, DutyRecord, Hints, Store,
    StoreError,
};
use crate::worker::panicked;

/// How long a process goes without asking, however far away the next time is: the duty may have
/// been declared with another interval, or forgotten.
const ASK_PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// How soon a declaration is made again that was not heard.
const UNHEARD_PAUSE: Duration = Duration::from_secs(1);

/// How soon a process asks again that could have been given a duty and was not: someone else is
/// about to have it.
const RIVAL_PAUSE: Duration = Duration::from_millis(100);

/// How soon a process asks again whose declaration the store refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// How long at most a process that ends tries to say what became of its handlers.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);

/// How a handler ended.
enum Finish {
    Ended(Result<(), String>),
    /// Its lease was over first, and it was dropped.
    Lost,
}

/// A lease as its holder sees it: a little shorter than it is, so that a clock that is slow or a
/// timer that is late does not let two handlers run at once.
#[derive(Clone, Copy)]
struct Lease {
    /// When to tell the handler that it may be over soon.
    tell_at: Instant,
    until: Instant,
}

impl Lease {
    /// The lease that a request gave which was sent then.
    fn of(sent: Instant, ttl: Duration) -> Self {
        Lease { tell_at: sent + ttl / 4 * 3, until: sent + ttl / 8 * 7 }
    }
}

/// A handler at work.
struct Work {
    mandate: DutyMandate,
    task: Id,
    began: Instant,
    renew_at: Instant,
    lease: watch::Sender<Lease>,
    told: CancellationToken,
}

/// Where this process is with a duty.
enum Stage {
    /// It asks for it then.
    Idle { ask_at: Instant },
    /// Its handler runs.
    AtWork(Work),
    /// Its handler ended, which the store does not know yet.
    Ended { end: DutyEnd, say_at: Instant },
}

/// A duty as this process sees it.
struct Post {
    declared: DutyDeclaration,
    handler: Handler,
    stage: Stage,
    /// The interval that was in force when this process last asked.
    every: Duration,
    /// Whether another process was at it then.
    is_elsewhere: bool,
    backoff: Backoff,
}

impl Post {
    fn work(&self) -> Option<&Work> {
        match &self.stage {
            Stage::AtWork(work) => Some(work),
            Stage::Idle { .. } | Stage::Ended { .. } => None,
        }
    }

    fn wake_at(&self, is_draining: bool) -> Option<Instant> {
        match &self.stage {
            Stage::Idle { ask_at } => (!is_draining).then_some(*ask_at),
            Stage::AtWork(work) => Some(work.renew_at),
            Stage::Ended { say_at, .. } => Some(*say_at),
        }
    }
}

/// All duties of a program in one process.
pub(super) struct Roster {
    store: Arc<dyn Store>,
    gate: Gate,
    candidate: CandidateId,
    process: String,
    settings: OwnSettings,
    rng: fastrand::Rng,
    posts: Vec<Post>,
    handlers: JoinSet<Option<Finish>>,
    vacancies: Hints,
    is_draining: bool,
}

impl Roster {
    pub(super) fn new(
        (store, gate): (Arc<dyn Store>, Gate),
        process: String,
        settings: OwnSettings,
        duties: Vec<(DutyDeclaration, Handler)>,
    ) -> Self {
        let mut rng = fastrand::Rng::with_seed(settings.seed);
        let now = Instant::now();
        let post = |(declared, handler): (DutyDeclaration, Handler)| Post {
            every: declared.every,
            declared,
            handler,
            stage: Stage::Idle { ask_at: now },
            is_elsewhere: false,
            backoff: Backoff::default(),
        };
        Roster {
            candidate: CandidateId::from_random(rng.u128(..)),
            vacancies: store.leader_hints(),
            store,
            gate,
            process,
            settings,
            rng,
            posts: duties.into_iter().map(post).collect(),
            handlers: JoinSet::new(),
            is_draining: false,
        }
    }

    /// Asks and works until `shutdown`, and then lets the handlers come to their end.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            // Both can be repeated. What is asked for is waited for: it may be given.
            let speak = async {
                self.renew().await;
                self.say_all(false).await;
            };
            if shutdown.run_until_cancelled(speak).await.is_none() {
                break;
            }
            self.ask().await;
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                Some(ended) = self.handlers.join_next_with_id() => self.note(ended),
                () = self.vacancies.changed() => self.hear(),
                () = sleep_until(wake_at) => {}
            }
        }
        self.drain().await;
    }

    /// Tells the handlers to end, waits for them for the grace period, and leaves to others what
    /// has not ended then.
    async fn drain(&mut self) {
        self.is_draining = true;
        let grace = self.settings.grace;
        let last_word = LAST_WORD_MAX.min(grace / 2);
        let stop_at = Instant::now() + (grace - last_word);
        self.posts.iter().filter_map(Post::work).for_each(|work| work.told.cancel());
        loop {
            let speak = async {
                self.say_all(false).await;
                self.renew().await;
            };
            let is_late = timeout_at(stop_at, speak).await.is_err() || Instant::now() >= stop_at;
            if is_late || self.posts.iter().all(|post| matches!(post.stage, Stage::Idle { .. })) {
                break;
            }
            let wake_at = self.wake_at().min(stop_at);
            tokio::select! {
                biased;
                Some(ended) = self.handlers.join_next_with_id() => self.note(ended),
                () = sleep_until(wake_at) => {}
            }
        }
        if timeout(last_word, self.give_up()).await.is_err() {
            tracing::warn!("could not give up the duties of the program in time");
        }
    }

    /// Drops the handlers and leaves their duties to others. A handler that cannot be dropped,
    /// because it never waits, keeps its lease.
    async fn give_up(&mut self) {
        self.handlers.shutdown().await;
        for place in 0..self.posts.len() {
            if let Some(work) = self.posts[place].work() {
                tracing::warn!(duty = %work.mandate, "was given up: its process ends");
                self.finish(place, DutyOutcome::GivenUp);
            }
        }
        self.say_all(true).await;
    }

    fn wake_at(&self) -> Instant {
        let wakes = self.posts.iter().filter_map(|post| post.wake_at(self.is_draining));
        wakes.min().unwrap_or_else(|| Instant::now() + ASK_PAUSE_MAX)
    }

    /// A duty may have been given up: whoever saw another at its duty asks soon.
    fn hear(&mut self) {
        let now = Instant::now();
        let spread = self.settings.spread_max.min(RIVAL_PAUSE);
        for post in self.posts.iter_mut().filter(|post| post.is_elsewhere) {
            if let Stage::Idle { ask_at } = &mut post.stage {
                *ask_at = (*ask_at).min(now + spread.mul_f64(self.rng.f64()));
            }
        }
    }

    /// Asks the store, for no longer than a third of a lease: those that are held are to be
    /// renewed meanwhile.
    async fn within<T>(
        ttl: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = ttl / 3;
        let late = || StoreError::Unavailable(format!("no answer within {limit:?}"));
        timeout(limit, call).await.map_err(|_| late())?
    }

    /// Asks for the duties whose time has come.
    async fn ask(&mut self) {
        let sent = Instant::now();
        let is_due = |post: &Post| match &post.stage {
            Stage::Idle { ask_at } => *ask_at <= sent,
            Stage::AtWork(_) | Stage::Ended { .. } => false,
        };
        let asked: Vec<usize> =
            (0..self.posts.len()).filter(|place| is_due(&self.posts[*place])).collect();
        if asked.is_empty() {
            return;
        }
        self.vacancies.take();
        let ttl = self.settings.ttl;
        let claim = DutyClaim {
            candidate: self.candidate,
            process: self.process.clone(),
            ttl,
            duties: asked.iter().map(|place| self.posts[*place].declared.clone()).collect(),
        };
        match Self::within(ttl, self.store.claim_duties(claim)).await {
            Ok(standing) => {
                for (place, record) in asked.into_iter().zip(standing.duties) {
                    self.posts[place].backoff.reset();
                    self.learn(place, &record, standing.at, sent);
                }
            }
            Err(error) => {
                for place in asked {
                    let post = &mut self.posts[place];
                    let pause = match error.is_retryable() {
                        true => post.backoff.next_pause(),
                        false => REFUSED_PAUSE,
                    };
                    let duty = &post.declared.name;
                    tracing::warn!(%duty, %error, ?pause, "could not ask for a duty");
                    post.stage = Stage::Idle { ask_at: Instant::now() + pause };
                }
            }
        }
    }

    /// Takes note of how a duty is, and begins it if it is this process's to do.
    fn learn(&mut self, place: usize, record: &DutyRecord, at: Timestamp, sent: Instant) {
        let post = &mut self.posts[place];
        // A declaration is not heard while somebody else has the row.
        let is_heard = record.every == post.declared.every;
        let is_unheard = post.declared.is_new && !is_heard;
        post.declared.is_new = is_unheard;
        if post.every != record.every && !is_unheard {
            let (duty, every, mine) = (&record.name, record.every, post.declared.every);
            tracing::warn!(%duty, ?every, ?mine, "another process declares another interval");
            post.every = record.every;
        }
        if record.is_held_by(self.candidate) {
            return self.begin(place, record, sent);
        }
        post.is_elsewhere = record.held_until().is_some_and(|until| until > at);
        let due_at = match record.held_until() {
            Some(until) => until.max(record.next_at),
            None => record.next_at,
        };
        let spread = (record.every / 10).min(self.settings.spread_max).mul_f64(self.rng.f64());
        let pause = match due_at.since(at) {
            none if none.is_zero() => RIVAL_PAUSE,
            pause if is_unheard => pause.min(UNHEARD_PAUSE),
            pause => pause.min(ASK_PAUSE_MAX) + spread,
        };
        self.posts[place].stage = Stage::Idle { ask_at: Instant::now() + pause };
    }

    /// Runs the handler.
    fn begin(&mut self, place: usize, record: &DutyRecord, sent: Instant) {
        let post = &mut self.posts[place];
        let DutyRecord { name, term, next_at, .. } = record;
        let told = CancellationToken::new();
        let ctx = DutyCtx {
            name: name.clone(),
            term: *term,
            nominal: *next_at,
            told: told.clone(),
            store: Arc::clone(&self.store),
        };
        let ttl = self.settings.ttl;
        let (lease, seen) = watch::channel(Lease::of(sent, ttl));
        let handler = Arc::clone(&post.handler);
        let run = attend(move || handler(ctx), seen, told.clone());
        let task = self.handlers.spawn(self.gate.wrap(run)).id();
        tracing::debug!(duty = %name, %term, nominal = %next_at, "began");
        let mandate = DutyMandate { name: name.clone(), candidate: self.candidate, term: *term };
        let (began, renew_at) = (Instant::now(), sent + ttl / 3);
        post.stage = Stage::AtWork(Work { mandate, task, began, renew_at, lease, told });
    }

    /// Renews the leases of all that this process is at, if it is time to.
    async fn renew(&mut self) {
        let sent = Instant::now();
        let ttl = self.settings.ttl;
        let mut works = self.posts.iter().filter_map(Post::work);
        if !works.any(|work| work.renew_at <= sent) {
            return;
        }
        let works = self.posts.iter().filter_map(Post::work);
        let mandates: Vec<DutyMandate> = works.map(|work| work.mandate.clone()).collect();
        let answer = Self::within(ttl, self.store.renew_duties(mandates, ttl)).await;
        for post in &mut self.posts {
            let Stage::AtWork(work) = &mut post.stage else { continue };
            match &answer {
                Ok(renewed) if renewed.contains(&work.mandate.name) => {
                    post.backoff.reset();
                    work.renew_at = sent + ttl / 3;
                    work.lease.send_replace(Lease::of(sent, ttl));
                }
                Ok(_) => {
                    tracing::warn!(duty = %work.mandate, "was lost to another process");
                    // The handler is dropped by this.
                    work.lease.send_replace(Lease { tell_at: sent, until: sent });
                    work.renew_at = sent + ttl;
                }
                Err(error) => {
                    let pause = post.backoff.next_pause();
                    tracing::warn!(duty = %work.mandate, %error, ?pause, "could not be renewed");
                    work.renew_at = Instant::now() + pause;
                }
            }
        }
    }

    /// Takes note of a handler that ended.
    fn note(&mut self, ended: Result<(Id, Option<Finish>), JoinError>) {
        let (task, finish) = match ended {
            Ok((task, finish)) => (task, finish),
            Err(error) => (error.id(), Some(Finish::Ended(Err(text_of(error))))),
        };
        let is_it = |post: &Post| post.work().is_some_and(|work| work.task == task);
        let Some(place) = self.posts.iter().position(is_it) else { return };
        match finish {
            Some(Finish::Ended(Ok(()))) => self.finish(place, DutyOutcome::Succeeded),
            // It was told to end, and did: its time is not over.
            Some(Finish::Ended(Err(_))) if self.is_told(place) => {
                self.finish(place, DutyOutcome::GivenUp);
            }
            Some(Finish::Ended(Err(error))) => {
                // What a handler says is sealed where all values are.
                let error_shown = self.store.keyring().is_none().then_some(error.as_str());
                tracing::warn!(duty = %self.posts[place].declared.name, error = error_shown, "failed");
                self.finish(place, DutyOutcome::Failed(error));
            }
            // None: its process was killed by the test kit, and this is not polled again.
            Some(Finish::Lost) | None => {
                let duty = &self.posts[place].declared.name;
                tracing::warn!(%duty, "its lease was over before its handler");
                self.posts[place].stage = Stage::Idle { ask_at: Instant::now() + RIVAL_PAUSE };
            }
        }
    }

    fn is_told(&self, place: usize) -> bool {
        self.posts[place].work().is_some_and(|work| work.told.is_cancelled())
    }

    /// Has the store told how a handler ended.
    fn finish(&mut self, place: usize, outcome: DutyOutcome) {
        let post = &mut self.posts[place];
        let Some(work) = post.work() else { return };
        let (mandate, took) = (work.mandate.clone(), work.began.elapsed());
        let end = DutyEnd { mandate, took, outcome };
        post.stage = Stage::Ended { end, say_at: Instant::now() };
    }

    /// Tells the store of the handlers that ended, and tries again what it did not answer, now or
    /// when it is time to.
    async fn say_all(&mut self, is_last: bool) {
        for place in 0..self.posts.len() {
            let sent = Instant::now();
            let Stage::Ended { end, say_at } = &self.posts[place].stage else { continue };
            if *say_at > sent && !is_last {
                continue;
            }
            let end = end.clone();
            let mandate = end.mandate.clone();
            let answer = Self::within(self.settings.ttl, self.store.end_duty(end.clone())).await;
            let now = Instant::now();
            let post = &mut self.posts[place];
            match answer {
                Ok(Some((at, record))) => {
                    post.backoff.reset();
                    self.learn(place, &record, at, sent);
                }
                Ok(None) => {
                    tracing::warn!(duty = %mandate, "was over before its handler ended");
                    post.stage = Stage::Idle { ask_at: now };
                }
                Err(error) => {
                    let pause = post.backoff.next_pause();
                    tracing::warn!(duty = %mandate, %error, ?pause, "could not be ended");
                    post.stage = Stage::Ended { end, say_at: now + pause };
                }
            }
        }
    }
}

/// Runs a handler until it ends or its lease is over, and tells it a little before that.
async fn attend(
    handler: impl FnOnce() -> HandlerFuture,
    lease: watch::Receiver<Lease>,
    told: CancellationToken,
) -> Finish {
    tokio::select! {
        biased;
        () = over(lease, told) => Finish::Lost,
        ended = async { handler().await } => Finish::Ended(ended),
    }
}

/// Waits until a lease is over.
async fn over(mut lease: watch::Receiver<Lease>, told: CancellationToken) {
    loop {
        let Lease { tell_at, until } = *lease.borrow_and_update();
        let is_told = told.is_cancelled();
        tokio::select! {
            biased;
            changed = lease.changed() => if changed.is_err() {
                // Nobody would renew it any more.
                return;
            },
            () = sleep_until(if is_told { until } else { tell_at }) => {
                if is_told {
                    return;
                }
                told.cancel();
            }
        }
    }
}

/// What is said of a handler that did not come to its end.
fn text_of(error: JoinError) -> String {
    let Ok(Outcome::Failed(failure)) = error.try_into_panic().map(panicked) else {
        return "was dropped".to_owned();
    };
    format!("panicked: {}", failure.message)
}
