//! The report of the doctor.

use serde::{Deserialize, Serialize};
use windlass_core::Timestamp;

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// For information; nothing is wrong.
    Notice,
    /// It slows the engine down, or will.
    Warning,
    /// It breaks the engine now, or loses acknowledged data.
    Critical,
}

impl FindingSeverity {
    /// Every severity, the worst first.
    pub const ALL: [FindingSeverity; 3] =
        [FindingSeverity::Critical, FindingSeverity::Warning, FindingSeverity::Notice];

    /// Its name, as in a report.
    pub const fn word(self) -> &'static str {
        match self {
            FindingSeverity::Notice => "notice",
            FindingSeverity::Warning => "warning",
            FindingSeverity::Critical => "critical",
        }
    }

    /// Whether something is wrong.
    pub fn is_wrong(self) -> bool {
        self > FindingSeverity::Notice
    }
}

/// One thing that was found. Its texts may hold text of users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// How severe it is.
    pub severity: FindingSeverity,
    /// What was found, by name.
    pub problem: String,
    /// The cause or the effect.
    pub cause: String,
    /// The fix: a statement, a command or an instruction.
    pub remedy: String,
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Examined {
    /// The name of the check, such as `server.transactions`.
    pub id: String,
    /// What should be true; see [`headline`](Examined::headline) for what was found.
    pub title: String,
    /// Why it was left out, if it was.
    pub skipped: Option<String>,
    /// How many things it found.
    pub found: u64,
    /// The worst of them, at most [`FINDINGS_MAX`](super::FINDINGS_MAX).
    pub findings: Vec<Finding>,
    /// The statement that shows them, if it is one.
    pub sql: Option<String>,
    /// How long it took.
    pub took_ms: u64,
}

impl Examined {
    /// How bad the worst of its findings is; `None` if there is none.
    pub fn severity(&self) -> Option<FindingSeverity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// What the doctor found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DoctorReport {
    /// When it began, by the database's clock.
    pub at: Timestamp,
    /// The address of the database, without its secrets.
    pub database: String,
    /// The version of the server.
    pub server: String,
    /// Every check, always in the same order.
    pub checks: Vec<Examined>,
}

impl DoctorReport {
    /// Whether nothing is wrong. Notices do not count.
    pub fn is_healthy(&self) -> bool {
        !self.severity().is_some_and(FindingSeverity::is_wrong)
    }

    /// How bad the worst finding is; `None` if there is none.
    pub fn severity(&self) -> Option<FindingSeverity> {
        self.checks.iter().filter_map(Examined::severity).max()
    }

    /// All findings, with the checks that they are of.
    pub fn findings(&self) -> impl Iterator<Item = (&Examined, &Finding)> {
        self.checks.iter().flat_map(|check| check.findings.iter().map(move |one| (check, one)))
    }
}
