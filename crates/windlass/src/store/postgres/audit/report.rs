//! What an audit says.

use serde::{Deserialize, Serialize};
use windlass_core::Timestamp;

/// How bad it is what a check finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A guarantee is broken.
    Violation,
    /// Something is late or odd, and may have a cause outside of Windlass.
    Warning,
}

/// What one check looked at and found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckResult {
    /// The name of the check, such as `G8.open-tasks`.
    pub id: String,
    /// The guarantee it belongs to, such as `G8`; `rows` and `schema` hold all of them up.
    pub guarantee: String,
    /// What must be true.
    pub title: String,
    /// How bad it is if it is not.
    pub severity: Severity,
    /// Whether it was left out because it makes sense for all runs only, or because it compares
    /// the schema with that of this program and a newer one has made it.
    pub is_skipped: bool,
    /// How many things it looked at.
    pub checked: u64,
    /// How many of them were wrong.
    pub violations: u64,
    /// The first of them in the order of their text, at most
    /// [`EXAMPLES_MAX`](super::EXAMPLES_MAX). They may hold text of users.
    pub examples: Vec<String>,
    /// The statement that shows the examples.
    pub sql: String,
    /// How long it took.
    pub took_ms: u64,
}

impl CheckResult {
    /// Whether it found a guarantee broken.
    pub fn is_violated(&self) -> bool {
        self.violations > 0 && self.severity == Severity::Violation
    }

    /// Whether it found something to warn of.
    pub fn is_warned(&self) -> bool {
        self.violations > 0 && self.severity == Severity::Warning
    }
}

/// What an audit comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing was found.
    Clean,
    /// No guarantee is broken, but there is something to warn of.
    Warned,
    /// A guarantee is broken.
    Violated,
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditReport {
    /// The time that it shows, by the database's clock.
    pub at: Timestamp,
    /// Only runs that were started at this time or later were checked; all if there is none.
    pub since: Option<Timestamp>,
    /// Every check, always in the same order.
    pub checks: Vec<CheckResult>,
}

impl AuditReport {
    /// Whether no guarantee was found broken. Warnings do not count.
    pub fn is_clean(&self) -> bool {
        !self.checks.iter().any(CheckResult::is_violated)
    }

    /// What it comes to, of what was checked.
    pub fn verdict(&self) -> Verdict {
        match (self.is_clean(), self.has_warnings()) {
            (false, _) => Verdict::Violated,
            (true, true) => Verdict::Warned,
            (true, false) => Verdict::Clean,
        }
    }

    /// Whether there is something to warn of.
    pub fn has_warnings(&self) -> bool {
        self.checks.iter().any(CheckResult::is_warned)
    }
}
