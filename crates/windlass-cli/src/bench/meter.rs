//! What a server has done so far, by its own counters.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

/// How long to wait for counters that are told late.
const COUNTERS_MAX: Duration = Duration::from_secs(5);

/// How often processes are read until none of them has ended meanwhile.
const READS_MAX: usize = 100;

/// Counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    transactions: i64,
    wal_bytes: i64,
    cpu: Option<Duration>,
}

/// What was done between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) time: Duration,
    pub(crate) transactions: f64,
    pub(crate) wal_bytes: f64,
    pub(crate) cpu: Option<Duration>,
}

impl Meter {
    /// Reads the counters. Sessions tell theirs when they end, or after a while: all others
    /// have ended, or none has done anything yet.
    pub(crate) async fn read(client: &Client, server: Option<u32>) -> anyhow::Result<Meter> {
        let began = Instant::now();
        let others = "select count(*) from pg_stat_activity where datname = current_database() \
                      and pid <> pg_backend_pid() and backend_type = 'client backend'";
        while client.query_one(others, &[]).await?.get::<_, i64>(0) > 0 {
            anyhow::ensure!(began.elapsed() < COUNTERS_MAX, "other sessions are in the database");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // In a statement of its own: within one, the statistics are those of its beginning.
        client.batch_execute("select pg_stat_clear_snapshot()").await?;
        let sql = "select xact_commit + xact_rollback, \
                   (pg_current_wal_insert_lsn() - '0/0')::bigint from pg_stat_database \
                   where datname = current_database()";
        let row = client.query_one(sql, &[]).await?;
        Ok(Meter { transactions: row.get(0), wal_bytes: row.get(1), cpu: server.and_then(cpu_of) })
    }

    /// What was done since another moment; `time` is the benchmark's to say.
    pub(crate) fn since(&self, before: &Meter, time: Duration) -> Spent {
        Spent {
            time,
            transactions: (self.transactions - before.transactions) as f64,
            wal_bytes: (self.wal_bytes - before.wal_bytes) as f64,
            cpu: self.cpu.zip(before.cpu).map(|(now, before)| now.saturating_sub(before)),
        }
    }
}

/// The time that a server and all its sessions, also those that have ended, have had of the
/// processors. Only where there is a `/proc`.
pub(crate) fn cpu_of(server: u32) -> Option<Duration> {
    let ticks = whole_ticks(|| stat(server), || ticks_of_sessions(server))?;
    // The unit is a hundredth of a second wherever Linux runs.
    Some(Duration::from_millis(ticks * 10))
}

/// The ticks of a server, of its sessions and of those that have ended. A session that ends
/// goes over from the second to the third: they are read again if one did meanwhile, or it
/// would be counted twice or not at all. `None` if one always does.
fn whole_ticks(
    mut server: impl FnMut() -> Option<Stat>,
    mut sessions: impl FnMut() -> Option<u64>,
) -> Option<u64> {
    let mut before = server()?;
    for _ in 0..READS_MAX {
        let of_sessions = sessions()?;
        let after = server()?;
        if after.ticks_of_children == before.ticks_of_children {
            return Some(after.ticks + after.ticks_of_children + of_sessions);
        }
        before = after;
    }
    None
}

/// The ticks of those sessions of a server that have not ended.
fn ticks_of_sessions(server: u32) -> Option<u64> {
    let mut ticks = 0;
    for entry in std::fs::read_dir("/proc").ok()? {
        let pid = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse().ok());
        let session = pid.and_then(stat).filter(|stat| stat.parent == server);
        ticks += session.map_or(0, |session| session.ticks);
    }
    Some(ticks)
}

struct Stat {
    parent: u32,
    ticks: u64,
    ticks_of_children: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything. Behind it: state, parent, …
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)?,
        ticks_of_children: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A server with sessions, one of which ends whenever the sessions are read, before or
    /// after it was.
    struct Server {
        sessions: Vec<u64>,
        ended: u64,
        ends_before: bool,
    }

    fn read(server: Server) -> Option<u64> {
        let server = RefCell::new(server);
        let own = || {
            let ticks_of_children = server.borrow().ended;
            Some(Stat { parent: 1, ticks: 7, ticks_of_children })
        };
        let sessions = || {
            let mut server = server.borrow_mut();
            let all: u64 = server.sessions.iter().sum();
            let ending = server.sessions.pop().unwrap_or(0);
            server.ended += ending;
            Some(if server.ends_before { all - ending } else { all })
        };
        whole_ticks(own, sessions)
    }

    #[test]
    fn a_session_that_ends_meanwhile_is_counted_once() {
        for ends_before in [true, false] {
            let server = Server { sessions: vec![100, 200, 300], ended: 40, ends_before };
            assert_eq!(read(server), Some(647));
        }
    }

    #[test]
    fn no_figure_is_better_than_a_wrong_one() {
        let server = Server { sessions: vec![1; READS_MAX], ended: 0, ends_before: true };
        assert_eq!(read(server), None);
    }
}
