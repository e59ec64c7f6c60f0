//! The headline of a check that found something: the finding, not the ideal.

use super::report::Examined;

/// How the finding of a check that could not be made begins.
pub(super) const UNCHECKED: &str = "could not be checked: ";

impl Examined {
    /// Returns the first line about the check: what should be true if nothing was found, and what was
    /// found otherwise.
    pub fn headline(&self) -> String {
        let Some(first) = self.findings.first() else {
            return self.title.clone();
        };
        if first.problem.starts_with(UNCHECKED) {
            return "the check could not be made".to_owned();
        }
        found(&self.id, self.found).unwrap_or_else(|| count(self.found, "problem"))
    }
}

/// A number with its noun: `1 worker`, `2 workers`.
fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

/// A number with its noun and a verb: `1 worker is`, `2 workers are`.
fn are(number: u64, noun: &str) -> String {
    format!("{} {}", count(number, noun), if number == 1 { "is" } else { "are" })
}

/// Returns what a check found, or `None` for an unknown check.
fn found(id: &str, number: u64) -> Option<String> {
    Some(match id {
        "server.suitable" => "the server or the role cannot be used".to_owned(),
        "schema.version" => "the schema does not match this program".to_owned(),
        "server.pooler" => "the database is behind a pooler, but --pooled is not set".to_owned(),
        "server.listening" => "notifications of other processes are not received".to_owned(),
        "server.clock" => "the clocks of the server and of this machine differ".to_owned(),
        "server.settings" => format!("{} not recommended", are(number, "server setting")),
        "server.connections" => "too few connections are left for another process".to_owned(),
        "server.sight" => "the role cannot see the sessions of other roles".to_owned(),
        "server.transactions" => format!("{} open for too long", are(number, "transaction")),
        "server.prepared" => format!("{} prepared for too long", are(number, "transaction")),
        "server.slots" => {
            format!("{} holding back the server", are(number, "replication slot or standby"))
        }
        "server.notify" => "the notification queue of the server fills up".to_owned(),
        "G12.index" => "the unique index on idempotency keys is missing or invalid".to_owned(),
        "schema.constraints" => format!("{} missing or invalid", are(number, "constraint")),
        "schema.indexes" => match number {
            1 => "1 index is missing or invalid".to_owned(),
            number => format!("{number} indexes are missing or invalid"),
        },
        "schema.functions" => format!("{} missing or changed", are(number, "function")),
        "schema.migrations" => format!("{} missing or changed", are(number, "migration")),
        "tables.vacuum" => format!("autovacuum does not keep up with {}", count(number, "table")),
        "tables.bloat" => {
            format!("{} bloated", are(number, "table or index").replace("indexs", "indexes"))
        }
        "tables.walls" => "row-level security does not isolate tenants".to_owned(),
        "engine.leaders" => format!("{} without a live leader", are(number, "maintenance job")),
        "engine.leases" => format!("{} expired, but the tasks were not reclaimed", leases(number)),
        "engine.workers" => format!("{} not cleaned up", are(number, "dead worker")),
        "engine.timers" => format!("{} overdue", are(number, "timer or deadline")),
        "engine.staged" => "a staged start or message is not delivered".to_owned(),
        "engine.limits" => format!("{} held by ended tasks", are(number, "limit slot")),
        "engine.unserved" => format!(
            "ready tasks of {} have no registered worker",
            count(number, "workflow version")
        ),
        "engine.schedules" => match number {
            1 => "1 schedule cannot be read or skips times".to_owned(),
            number => format!("{number} schedules cannot be read or skip times"),
        },
        _ => return None,
    })
}

fn leases(number: u64) -> String {
    format!("{} {}", count(number, "lease"), if number == 1 { "has" } else { "have" })
}

#[cfg(test)]
mod tests {
    use super::super::checks::CHECKS;
    use super::super::report::{Finding, FindingSeverity};
    use super::*;

    fn examined(id: &str, problems: &[&str]) -> Examined {
        let finding = |problem: &&str| Finding {
            severity: FindingSeverity::Warning,
            problem: (*problem).to_owned(),
            cause: String::new(),
            remedy: String::new(),
        };
        Examined {
            id: id.to_owned(),
            title: "every ready task has a registered worker".to_owned(),
            skipped: None,
            found: problems.len() as u64,
            findings: problems.iter().map(finding).collect(),
            sql: None,
            took_ms: 0,
        }
    }

    #[test]
    fn a_headline_states_the_finding_and_not_the_ideal() {
        let headline = |problems: &[&str]| examined("engine.unserved", problems).headline();
        assert_eq!(headline(&[]), "every ready task has a registered worker");
        assert_eq!(headline(&["a"]), "ready tasks of 1 workflow version have no registered worker");
        assert_eq!(
            headline(&["a", "b"]),
            "ready tasks of 2 workflow versions have no registered worker"
        );
        assert_eq!(headline(&["could not be checked: no"]), "the check could not be made");
        assert_eq!(examined("other", &["a", "b"]).headline(), "2 problems");
    }

    #[test]
    fn every_check_has_a_headline() {
        for check in CHECKS {
            let (id, _) = check.names();
            for number in [1, 2] {
                assert!(found(id, number).is_some(), "add a headline for {id}");
            }
        }
    }
}
