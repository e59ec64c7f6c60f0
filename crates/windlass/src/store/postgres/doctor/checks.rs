//! The checks that are SQL statements, and their thresholds.

use std::time::Duration;

use windlass_core::why::SILENT_MAX;

use super::super::audit::interval;
use super::super::options::PostgresOptions;
use super::DoctorOptions;

/// The minimum of each setting. The defaults of PostgreSQL and of a private server are higher.
const SHARED_BUFFERS_MIN: u64 = 32 << 20;
const MAX_WAL_SIZE_MIN: u64 = 256 << 20;
const MAX_LOCKS_MIN: u64 = 64;
const STATEMENT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TRANSACTION_TIMEOUT_MIN: Duration = Duration::from_secs(30);

/// A transaction that is this many times older than the warning threshold is critical.
const LONG_TRANSACTION_FACTOR: u32 = 12;

/// The maximum number of transactions whose dead rows a slot or standby may keep: about an hour of a
/// busy engine, which runs some hundreds per second.
const OLD_TRANSACTIONS: u32 = 1_000_000;

/// Fewer dead rows are never reported, whatever the thresholds of the table are.
const DEAD_ROWS_MIN: u32 = 10_000;

/// Autovacuum does not keep up if the dead rows exceed this multiple of its threshold.
const DEAD_ROWS_FACTOR: u32 = 3;

/// The maximum ratio of the size of a file to its contents: one more version of each row, twice.
const BLOAT_FACTOR: u32 = 4;

/// The requirement of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// A server.
    Server,
    /// The schema, in the version of this program.
    Schema,
}

/// A check: a statement that returns a row for each finding, with `severity`, `problem`, `cause` and
/// `remedy`. Its first line is `-- id: title`.
pub(super) struct Check {
    pub(super) text: &'static str,
    pub(super) needs: Needs,
}

impl Check {
    const fn of_server(text: &'static str) -> Self {
        Check { text, needs: Needs::Server }
    }

    const fn of_schema(text: &'static str) -> Self {
        Check { text, needs: Needs::Schema }
    }

    /// Its name and what should be true.
    pub(super) fn names(&self) -> (&'static str, &'static str) {
        let line = self.text.lines().next().unwrap_or_default();
        let line = line.strip_prefix("-- ").unwrap_or(line);
        line.split_once(": ").unwrap_or((line, ""))
    }
}

/// All checks that are statements, in the order in which they run.
pub(super) const CHECKS: &[Check] = &[
    Check::of_server(include_str!("sql/server_settings.sql")),
    Check::of_server(include_str!("sql/server_connections.sql")),
    Check::of_server(include_str!("sql/server_sight.sql")),
    Check::of_server(include_str!("sql/server_transactions.sql")),
    Check::of_server(include_str!("sql/server_prepared.sql")),
    Check::of_server(include_str!("sql/server_slots.sql")),
    Check::of_server(include_str!("sql/server_notify.sql")),
    Check::of_schema(include_str!("sql/tables_vacuum.sql")),
    Check::of_schema(include_str!("sql/tables_bloat.sql")),
    Check::of_schema(include_str!("sql/tables_walls.sql")),
    Check::of_schema(include_str!("sql/engine_leaders.sql")),
    Check::of_schema(include_str!("sql/engine_leases.sql")),
    Check::of_schema(include_str!("sql/engine_workers.sql")),
    Check::of_schema(include_str!("sql/engine_timers.sql")),
    Check::of_schema(include_str!("sql/engine_staged.sql")),
    Check::of_schema(include_str!("sql/engine_unserved.sql")),
    Check::of_schema(include_str!("sql/engine_limits.sql")),
];

/// The values of the placeholders `{name}` in the files. None comes from users: statements are printed
/// as they run, so they have no parameters.
pub(super) struct Limits(Vec<(&'static str, String)>);

impl Limits {
    pub(super) fn new(database: &PostgresOptions, options: &DoctorOptions) -> Self {
        let millis = |time: Duration| time.as_millis().to_string();
        Limits(vec![
            ("late_after", interval(options.late_after)),
            ("long_transaction", interval(options.long_transaction)),
            ("long_transaction_factor", LONG_TRANSACTION_FACTOR.to_string()),
            ("old_transactions", OLD_TRANSACTIONS.to_string()),
            ("pool_size", database.max_connections.to_string()),
            ("shared_buffers_min", SHARED_BUFFERS_MIN.to_string()),
            ("max_wal_size_min", MAX_WAL_SIZE_MIN.to_string()),
            ("max_locks_min", MAX_LOCKS_MIN.to_string()),
            ("statement_timeout_min", millis(STATEMENT_TIMEOUT_MIN)),
            ("transaction_timeout_min", millis(TRANSACTION_TIMEOUT_MIN)),
            ("forever", i64::MAX.to_string()),
            ("notify_queue_max", format!("{:?}", options.notify_queue_max)),
            ("dead_rows_min", DEAD_ROWS_MIN.to_string()),
            ("dead_rows_factor", DEAD_ROWS_FACTOR.to_string()),
            ("bloat_min", options.bloat_min_bytes.to_string()),
            ("bloat_factor", BLOAT_FACTOR.to_string()),
            ("silent_max", interval(SILENT_MAX)),
        ])
    }

    /// The statement of a file.
    pub(super) fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::audit::body;
    use super::*;

    #[test]
    fn nothing_is_left_to_fill_in() {
        let limits = Limits::new(&PostgresOptions::new("postgres://h/d"), &DoctorOptions::new());
        for check in CHECKS {
            let query = limits.fill(check.text);
            assert!(!body(&query).contains(['{', '}']), "{query}");
        }
    }

    #[test]
    fn every_limit_is_used() {
        let limits = Limits::new(&PostgresOptions::new("postgres://h/d"), &DoctorOptions::new());
        for (name, _) in &limits.0 {
            let placeholder = format!("{{{name}}}");
            assert!(CHECKS.iter().any(|check| check.text.contains(&placeholder)), "{name}");
        }
    }

    #[test]
    fn every_check_has_a_name_and_says_what_should_be_true() {
        for check in CHECKS {
            let (id, title) = check.names();
            assert!(id.contains('.') && !title.is_empty(), "{id}: {title}");
            let needs_schema = !id.starts_with("server.");
            assert_eq!(check.needs == Needs::Schema, needs_schema, "{id}");
        }
    }
}
