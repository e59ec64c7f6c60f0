//! What a server has done so far, by its own counters.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

/// How long to wait for counters that are told late.
const COUNTERS_MAX: Duration = Duration::from_secs(5);

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
fn cpu_of(server: u32) -> Option<Duration> {
    let own = stat(server)?;
    let mut ticks = own.ticks + own.ticks_of_children;
    for entry in std::fs::read_dir("/proc").ok()? {
        let pid = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse().ok());
        let child = pid.and_then(stat).filter(|stat| stat.parent == server);
        ticks += child.map_or(0, |child| child.ticks);
    }
    // The unit is a hundredth of a second wherever Linux runs.
    Some(Duration::from_millis(ticks * 10))
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
