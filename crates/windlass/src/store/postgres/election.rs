//! How it is decided who leads: by the times in the rows, or by a lock of a session.
//!
//! Either way the term comes from the row, and every sweep is held to it: an election says
//! only who may begin the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass_core::CandidateId;

use super::address::Target;
use super::fault::Fault;
use super::options::{LeaderElection, PostgresOptions};
use super::pool::{answer_max, open, within};
use crate::store::{Candidacy, Duty};
use crate::{Error, ErrorKind};

/// The class of the locks of leaders among all advisory locks.
const LOCK_CLASS: i32 = 1_464_421_958;

/// Takes the locks of the duties that are free, all in one statement.
const TRY_LOCKS: &str = "select d.number, pg_try_advisory_lock($1, d.number)
    from unnest($2::integer[]) d (number)";

/// Lets go of the locks of duties.
const UNLOCK: &str = "select pg_advisory_unlock($1, d.number)
    from unnest($2::integer[]) d (number)";

/// For how much of its time to live a leader that rotates leaves a lock to others. They know from
/// the row when it does, and come within a tenth of the time to live.
const REST: f64 = 0.5;

/// What a candidate has a right to, besides what the rows say.
#[derive(Debug, Default)]
pub(super) struct Seats {
    /// The duties that it may lead, whatever the times in their rows; none if those decide.
    pub(super) held: Option<BTreeSet<Duty>>,
    /// Those among them that it had not when it last asked: it begins a new term.
    pub(super) gained: BTreeSet<Duty>,
}

/// Decides who may begin the next term of a duty.
#[async_trait]
pub(super) trait Election: Send + Sync {
    /// What the candidate has a right to now.
    async fn seats(&self, candidacy: &Candidacy) -> Result<Seats, Fault>;

    /// The candidate has led these duties for as long as it wants to while others are there: any
    /// of them may begin the next term.
    async fn make_room(&self, candidacy: &Candidacy, duties: &BTreeSet<Duty>);

    /// The candidate gave up what it led.
    async fn release(&self, candidate: CandidateId);
}

/// The election that the options ask for.
/// The election of whoever never stands for one.
pub(super) fn by_row() -> Box<dyn Election> {
    Box::new(ByRow)
}

/// The election that options ask for.
pub(super) fn of(options: &PostgresOptions) -> Result<Box<dyn Election>, Error> {
    match options.election {
        LeaderElection::LeaseRow => Ok(Box::new(ByRow)),
        LeaderElection::AdvisoryLock => {
            let target = options.session_target()?.ok_or_else(|| {
                let text = "an election by advisory lock needs an address that is not a \
                            pooler's, see PostgresOptions::listen_url";
                Error::new(ErrorKind::Argument, text)
            })?;
            let (open_max, answer_max) = (options.open_max(), answer_max(options));
            let limits = Limits { open_max, answer_max };
            Ok(Box::new(ByLock { target, limits, sessions: Mutex::default() }))
        }
    }
}

/// The times in the rows decide.
struct ByRow;

#[async_trait]
impl Election for ByRow {
    async fn seats(&self, _: &Candidacy) -> Result<Seats, Fault> {
        Ok(Seats::default())
    }

    // The row says from when on.
    async fn make_room(&self, _: &Candidacy, _: &BTreeSet<Duty>) {}

    async fn release(&self, _: CandidateId) {}
}

/// Whoever has the advisory lock of a duty leads it, for as long as its session lives.
struct ByLock {
    target: Target,
    limits: Limits,
    /// The session of each candidate of this process.
    sessions: Mutex<BTreeMap<CandidateId, Session>>,
}

/// How long the database may take.
#[derive(Clone, Copy)]
struct Limits {
    /// To let a session in.
    open_max: Duration,
    /// To answer; `None` for ever.
    answer_max: Option<Duration>,
}

/// A session that holds locks.
struct Session {
    client: Client,
    /// How long an answer may take. Longer than the time to live nobody waits: the server has
    /// ended the session then, or another process may lead.
    answer_max: Duration,
    held: BTreeSet<Duty>,
    /// The duties that are left to others until then.
    rests: BTreeMap<Duty, Instant>,
    _ends: DropGuard,
}

impl Session {
    async fn open(target: &Target, limits: Limits, ttl: Duration) -> Result<Session, Fault> {
        let (client, driver) = open(target, limits.open_max).await?;
        let ends = CancellationToken::new();
        tokio::spawn(ends.clone().run_until_cancelled_owned(driver));
        // A process that is frozen keeps its connection. The server closes it, and with it
        // goes the lock, if nothing was said on it for the time to live.
        let millis = ttl.as_millis().min(i32::MAX as u128);
        let answer_max = limits.answer_max.map_or(ttl, |limit| limit.min(ttl));
        let text = format!("set idle_session_timeout = {millis}");
        within(Some(answer_max), client.batch_execute(&text)).await??;
        Ok(Session {
            client,
            answer_max,
            held: BTreeSet::new(),
            rests: BTreeMap::new(),
            _ends: ends.drop_guard(),
        })
    }

    /// Takes the locks that are free; answers those that are new. Also if it has all, the
    /// session is asked: only its answer shows that it still has them.
    async fn take_locks(&mut self) -> Result<BTreeSet<Duty>, Fault> {
        let now = Instant::now();
        self.rests.retain(|_, until| *until > now);
        let is_missing = |duty: &Duty| !self.held.contains(duty) && !self.rests.contains_key(duty);
        let missing = Duty::ALL.into_iter().filter(is_missing);
        let numbers: Vec<i32> = missing.map(number).collect();
        let rows = self.ask(TRY_LOCKS, &numbers).await?;
        let taken = rows.iter().filter(|row| row.get(1)).map(|row| row.get::<_, i32>(0));
        let taken: BTreeSet<i32> = taken.collect();
        let gained = Duty::ALL.into_iter().filter(|duty| taken.contains(&number(*duty)));
        let gained: BTreeSet<Duty> = gained.collect();
        self.held.extend(&gained);
        Ok(gained)
    }

    /// Asks for something about the locks of some duties.
    async fn ask(&self, statement: &str, numbers: &Vec<i32>) -> Result<Vec<Row>, Fault> {
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&LOCK_CLASS, Type::INT4), (numbers, Type::INT4_ARRAY)];
        let asked = self.client.query_typed(statement, &params);
        Ok(within(Some(self.answer_max), asked).await??)
    }

    /// Lets go of locks, and leaves them to others for a while.
    async fn leave_locks(&mut self, duties: &BTreeSet<Duty>, ttl: Duration) -> Result<(), Fault> {
        let left: Vec<Duty> = self.held.intersection(duties).copied().collect();
        if left.is_empty() {
            return Ok(());
        }
        let numbers: Vec<i32> = left.iter().copied().map(number).collect();
        self.ask(UNLOCK, &numbers).await?;
        let until = Instant::now() + ttl.mul_f64(REST);
        for duty in left {
            self.held.remove(&duty);
            self.rests.insert(duty, until);
        }
        Ok(())
    }
}

/// The number of a duty's lock.
const fn number(duty: Duty) -> i32 {
    match duty {
        Duty::PromoteDue => 1,
        Duty::Reap => 2,
        Duty::Prune => 3,
        Duty::Schedules => 4,
        Duty::Rollup => 5,
        Duty::Audit => 6,
    }
}

#[async_trait]
impl Election for ByLock {
    async fn seats(&self, candidacy: &Candidacy) -> Result<Seats, Fault> {
        let mut sessions = self.sessions.lock().await;
        let candidate = candidacy.candidate;
        // A call that is given up in the middle leaves no session behind, and no leadership.
        let mut session = match sessions.remove(&candidate) {
            Some(session) => session,
            None => Session::open(&self.target, self.limits, candidacy.ttl).await?,
        };
        let gained = session.take_locks().await?;
        let held = Some(session.held.clone());
        sessions.insert(candidate, session);
        Ok(Seats { held, gained })
    }

    async fn make_room(&self, candidacy: &Candidacy, duties: &BTreeSet<Duty>) {
        let mut sessions = self.sessions.lock().await;
        let Some(mut session) = sessions.remove(&candidacy.candidate) else { return };
        match session.leave_locks(duties, candidacy.ttl).await {
            Ok(()) => {
                sessions.insert(candidacy.candidate, session);
            }
            // The locks go with the session.
            Err(fault) => tracing::debug!(?fault, "could not let go of the locks of duties"),
        }
    }

    async fn release(&self, candidate: CandidateId) {
        // The server lets go of the locks of a session that ends.
        self.sessions.lock().await.remove(&candidate);
    }
}
