//! What statements alone do not show: whether sessions last, whether hints are heard, and how
//! far apart the clocks are.

use std::time::{Duration, SystemTime};

use futures_util::stream::{StreamExt, poll_fn};
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};
use windlass_core::Timestamp;

use super::super::address::Target;
use super::super::fault::{Fault, describe};
use super::super::options::PostgresOptions;
use super::super::pool::open;
use super::super::time::At;
use super::report::{Finding, FindingSeverity};
use super::{DoctorOptions, connect};
use crate::Error;

/// How long a session may take to answer, or to hear what was said.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// How often the clocks are compared: the quickest answer tells most.
const CLOCK_LOOKS: usize = 3;

/// How far apart the clocks may be.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(1);

/// What is set for the session that is looked at, and found again if it is one.
const FACT: &str = "idle_in_transaction_session_timeout";

/// Whether there is a pooler between here and the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pooler {
    /// None that shows.
    None,
    /// One, and what it was seen by.
    Seen(&'static str),
}

/// Looks for a pooler that gives a server connection to others between transactions.
pub(super) async fn look_for_pooler(
    database: &PostgresOptions,
    plain: &Target,
) -> Result<Pooler, Error> {
    let announced = database.clone().pooled(false).target()?;
    match open(&announced, database.open_max()).await {
        Err(Fault::Database(error))
            if describe(&error).contains("unsupported startup parameter") =>
        {
            return Ok(Pooler::Seen("it rejects session settings"));
        }
        // The sessions below say more.
        Err(_) => {}
        Ok((client, driver)) => {
            tokio::spawn(driver);
            let set = database.idle_in_transaction_timeout.as_millis().to_string();
            let sql = format!("select setting from pg_settings where name = '{FACT}'");
            if answer(&client, &sql).await.is_some_and(|found| found != set) {
                return Ok(Pooler::Seen("it drops session settings"));
            }
        }
    }
    let (here, there) = (connect(plain).await?, connect(plain).await?);
    let who = "select pg_backend_pid()";
    // A pooler gives the connection that was idle for the longest time, and so another, …
    let (first, again) = (answer(&here, who).await, answer(&here, who).await);
    // … or the same to whoever comes; and while one has it, the other another, or none.
    let other = match there.batch_execute("begin").await {
        Ok(()) => answer(&there, who).await,
        Err(_) => None,
    };
    let second = answer(&here, who).await;
    let ended = there.batch_execute("rollback").await;
    let is_moved = first != again || first == other || first != second;
    if first.is_some() && again.is_some() && ended.is_ok() && is_moved {
        return Ok(Pooler::Seen("a session changes its server connection"));
    }
    Ok(Pooler::None)
}

/// The only value that a statement gives; `None` if it does not come.
async fn answer(client: &Client, sql: &str) -> Option<String> {
    let rows = timeout(ANSWER_MAX, client.simple_query(sql)).await.ok()?.ok()?;
    rows.iter().find_map(|row| {
        let SimpleQueryMessage::Row(row) = row else { return None };
        row.get(0).map(str::to_owned)
    })
}

/// What to say of a pooler, or of none.
pub(super) fn judge_pooler(pooler: &Pooler, is_announced: bool) -> Option<Finding> {
    match (pooler, is_announced) {
        (Pooler::None, _) | (Pooler::Seen(_), true) => None,
        (Pooler::Seen(seen), false) => Some(Finding {
            severity: FindingSeverity::Critical,
            problem: format!("the database is behind a pooler: {seen}"),
            cause: "a store refuses an unannounced pooler, since prepared statements and settings \
                    would be lost or reach other clients"
                .to_owned(),
            remedy:
                "set --pooled, in a program PostgresOptions::pooled, and give a direct address \
                     to listen on with PostgresOptions::listen_url"
                    .to_owned(),
        }),
    }
}

/// Whether what is said through one session is heard in another, as stores do it.
pub(super) async fn listening(
    database: &PostgresOptions,
    client: &Client,
    pooler: &Pooler,
) -> Result<Option<Finding>, Error> {
    let deaf = |severity, problem: String| Finding {
        severity,
        problem,
        cause: "changes of other processes are found by polling: tasks start later, and workers \
                poll more often"
            .to_owned(),
        remedy: "give a direct address to listen on with PostgresOptions::listen_url".to_owned(),
    };
    let Some(target) = database.session_target()? else {
        let problem = "notifications do not pass the pooler".to_owned();
        return Ok(Some(deaf(FindingSeverity::Notice, problem)));
    };
    // Whoever listened through it would leave that to the next user of the connection.
    if *pooler != Pooler::None && !database.has_listen_url() {
        let problem = "notifications do not pass the unannounced pooler".to_owned();
        return Ok(Some(deaf(FindingSeverity::Warning, problem)));
    }
    let reason = match is_heard(&target, database, client).await {
        Ok(true) => return Ok(None),
        Ok(false) => format!("a test notification did not arrive within {ANSWER_MAX:?}"),
        Err(fault) => fault.to_string(),
    };
    let problem = format!("notifications are not received on {}: {reason}", target.name());
    Ok(Some(deaf(FindingSeverity::Warning, problem)))
}

/// Listens on a channel of its own, so that nobody at work is woken.
async fn is_heard(
    target: &Target,
    database: &PostgresOptions,
    sender: &Client,
) -> Result<bool, Fault> {
    let (client, mut driver) = open(target, database.open_max()).await?;
    let payload = format!("{:016x}", fastrand::u64(..));
    let mut messages = poll_fn(|context| driver.poll_message(context));
    let hear = async {
        while let Some(message) = messages.next().await {
            let AsyncMessage::Notification(it) = message.map_err(Fault::from)? else { continue };
            if it.payload() == payload {
                return Ok(true);
            }
        }
        Err(Fault::Unavailable("the connection was closed".to_owned()))
    };
    let say = async {
        client.batch_execute("listen windlass_doctor").await.map_err(Fault::from)?;
        let sql = format!("select pg_notify('windlass_doctor', '{payload}')");
        sender.batch_execute(&sql).await.map_err(Fault::from)?;
        sleep(ANSWER_MAX).await;
        Ok(false)
    };
    tokio::select! {
        biased;
        heard = hear => heard,
        silent = say => silent,
    }
}

/// Compares the clock of the server with that of this machine.
pub(super) async fn clock(
    client: &Client,
    options: &DoctorOptions,
) -> Result<Option<Finding>, tokio_postgres::Error> {
    let here = || match &options.clock {
        Some(clock) => clock.now(),
        None => Timestamp::from(SystemTime::now()),
    };
    let mut best: Option<Difference> = None;
    for _ in 0..CLOCK_LOOKS {
        let before = here();
        let row = client.query_typed_one("select clock_timestamp()", &[]).await?;
        let seen = Difference::between(before, row.get::<_, At>(0).0, here());
        best = Some(best.filter(|best| best.doubt <= seen.doubt).unwrap_or(seen));
    }
    Ok(best.and_then(Difference::judge))
}

/// How far the server's clock is ahead of ours, in microseconds, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Difference {
    ahead: i64,
    doubt: i64,
}

impl Difference {
    /// The server looked at its clock at some time between two looks at ours.
    fn between(before: Timestamp, server: Timestamp, after: Timestamp) -> Self {
        let (before, after) = (before.as_micros(), after.as_micros());
        let middle = before.midpoint(after);
        Difference { ahead: server.as_micros() - middle, doubt: (after - before) / 2 }
    }

    fn judge(self) -> Option<Finding> {
        let certain = self.ahead.abs() - self.doubt;
        if certain <= i64::try_from(CLOCK_DIFFERENCE_MAX.as_micros()).unwrap_or(i64::MAX) {
            return None;
        }
        let apart = Duration::from_millis(self.ahead.unsigned_abs() / 1_000);
        let side = if self.ahead > 0 { "ahead of" } else { "behind" };
        Some(Finding {
            severity: FindingSeverity::Warning,
            problem: format!(
                "the clock of the server is {apart:?} {side} the clock of this machine"
            ),
            cause: "the engine uses the clock of the server; times that are set here, and logs, \
                    are off by that"
                .to_owned(),
            remedy: "synchronize both clocks: timedatectl set-ntp true".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_apart_only_if_a_slow_answer_does_not_explain_it() {
        let second = 1_000_000;
        let at = |seconds: i64| Timestamp::from_micros(100 * second + seconds * second);
        for (server, after, is_found) in [
            (0, 0, false),
            (1, 0, false),
            (2, 0, true),
            (-2, 0, true),
            // An answer that took four seconds may have been given at any time of them.
            (4, 4, false),
            (6, 4, true),
        ] {
            let found = Difference::between(at(0), at(server), at(after)).judge();
            assert_eq!(found.is_some(), is_found, "{server} {after}: {found:?}");
        }
        let found = Difference::between(at(0), at(-90), at(0)).judge().unwrap();
        assert!(found.problem.contains("90s behind"), "{found:?}");
    }
}
