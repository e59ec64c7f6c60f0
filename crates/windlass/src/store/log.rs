//! What was changed by someone: who, what, when, to what and from where.
//!
//! The log only grows: no verb changes or deletes an entry. What is done to dead letters is
//! written down in the operation that does it. What else is done from the command line or through a
//! server is written down before it is done, so that nothing is done without a line. If it is
//! refused, a second entry says why: its detail is that of [`refusal`].

use std::fmt;

use serde_json::{Value, json};
use windlass_core::{ActionId, Operator, Payload, RunId, Tenant, Timestamp, TokenId};

/// Something that an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Lets failed runs go on.
    Redrive,
    /// Discards dead letters.
    Discard,
    /// Retries a run.
    RetryRun,
    /// Cancels a run.
    CancelRun,
    /// Undoes a run.
    UndoRun,
    /// Sets the weight of a tenant.
    SetWeight,
    /// Sets how long runs are kept.
    SetRetention,
    /// Deletes a rule of how long runs are kept.
    ClearRetention,
    /// Makes a schedule, or another of it.
    PutSchedule,
    /// Pauses a schedule.
    PauseSchedule,
    /// Resumes a schedule.
    ResumeSchedule,
    /// Starts a run of a schedule.
    TriggerSchedule,
    /// Starts runs for nominal times that are past.
    BackfillSchedule,
    /// Deletes a schedule.
    DeleteSchedule,
    /// Makes a workflow known, or another of it.
    RegisterWorkflow,
    /// Sends a signal to a run.
    SignalRun,
    /// Sends a signal to a key.
    SignalKey,
    /// Disables the schedules that a program declares no more.
    DisableSchedules,
    /// Forgets a duty of programs.
    ForgetDuty,
    /// Makes a token.
    CreateToken,
    /// Revokes a token.
    RevokeToken,
    /// Sets what a tenant may have.
    SetQuota,
    /// Lets a tenant have what all others may have.
    ClearQuota,
}

impl Action {
    /// Every action.
    pub const ALL: [Action; 23] = [
        Action::Redrive,
        Action::Discard,
        Action::RetryRun,
        Action::CancelRun,
        Action::UndoRun,
        Action::SetWeight,
        Action::SetRetention,
        Action::ClearRetention,
        Action::PutSchedule,
        Action::PauseSchedule,
        Action::ResumeSchedule,
        Action::TriggerSchedule,
        Action::BackfillSchedule,
        Action::DeleteSchedule,
        Action::RegisterWorkflow,
        Action::SignalRun,
        Action::SignalKey,
        Action::DisableSchedules,
        Action::ForgetDuty,
        Action::CreateToken,
        Action::RevokeToken,
        Action::SetQuota,
        Action::ClearQuota,
    ];

    /// Its name in stored data and in what people see.
    pub const fn word(self) -> &'static str {
        match self {
            Action::Redrive => "redrive",
            Action::Discard => "discard",
            Action::RetryRun => "retry_run",
            Action::CancelRun => "cancel_run",
            Action::UndoRun => "undo_run",
            Action::SetWeight => "set_weight",
            Action::SetRetention => "set_retention",
            Action::ClearRetention => "clear_retention",
            Action::PutSchedule => "put_schedule",
            Action::PauseSchedule => "pause_schedule",
            Action::ResumeSchedule => "resume_schedule",
            Action::TriggerSchedule => "trigger_schedule",
            Action::BackfillSchedule => "backfill_schedule",
            Action::DeleteSchedule => "delete_schedule",
            Action::RegisterWorkflow => "register_workflow",
            Action::SignalRun => "signal_run",
            Action::SignalKey => "signal_key",
            Action::DisableSchedules => "disable_schedules",
            Action::ForgetDuty => "forget_duty",
            Action::CreateToken => "create_token",
            Action::RevokeToken => "revoke_token",
            Action::SetQuota => "set_quota",
            Action::ClearQuota => "clear_quota",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl std::str::FromStr for Action {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let action = Action::ALL.into_iter().find(|action| action.word() == word);
        action.ok_or_else(|| format!("{word:?} is not an action"))
    }
}

/// Who does something, and what a server knows of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The name: that of the token, or what whoever has the database says.
    pub name: Operator,
    /// The token that was shown to a server, if it was one.
    pub token: Option<TokenId>,
    /// Where the request came from: an address or `unix`; none if through no server.
    pub origin: Option<String>,
}

impl From<Operator> for Author {
    fn from(name: Operator) -> Self {
        Author { name, token: None, origin: None }
    }
}

/// An entry to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewLogEntry {
    /// Chosen by whoever writes it: repeated with the same id, it is written once.
    pub id: ActionId,
    /// Who does it.
    pub by: Author,
    /// What.
    pub action: Action,
    /// To whose runs, if it is about one tenant.
    pub tenant: Option<Tenant>,
    /// To which run, if it is about one.
    pub run: Option<RunId>,
    /// What else there is to say of it.
    pub detail: Option<Payload>,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// Its number: later entries have larger ones.
    pub number: u64,
    /// Its id.
    pub id: ActionId,
    /// When it was written.
    pub at: Timestamp,
    /// Who did it.
    pub by: Author,
    /// What.
    pub action: Action,
    /// To whose runs, if it is about one tenant.
    pub tenant: Option<Tenant>,
    /// The runs to which it was done.
    pub runs: Vec<RunId>,
    /// What else there is to say of it: which dead letters were meant, and what was refused.
    pub detail: Option<Payload>,
}

/// Which entries to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// Only those about this run.
    pub run: Option<RunId>,
    /// Only those of this action.
    pub action: Option<Action>,
    /// Only those of this operator.
    pub by: Option<Operator>,
    /// Only those about this tenant.
    pub tenant: Option<Tenant>,
    /// Only those with a smaller number: where the previous page ended.
    pub before: Option<u64>,
    /// The most entries of the page, up to [`PAGE_MAX`](super::PAGE_MAX); 0 is that limit.
    pub limit: usize,
}

/// A page of the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogPage {
    /// The entries, the newest first.
    pub entries: Vec<LogEntry>,
    /// The number of the last of them, if there are more.
    pub next: Option<u64>,
}

/// The field of the detail of an entry that has the reason why an action was refused.
pub const REFUSED: &str = "refused";

/// The field of the detail of the same entry that has the id of the entry that was written before
/// the action.
pub const REFUSED_ENTRY: &str = "refused_entry";

/// The most characters of the reason of a refusal that are logged.
const REASON_CHARS_MAX: usize = 500;

/// Returns the detail of the entry that says that an action was refused, and why. `entry` is the id
/// of the entry that was written before the action. A reason is cut after 500 characters.
pub fn refusal(entry: ActionId, reason: &str) -> Value {
    let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
    json!({ REFUSED: reason, REFUSED_ENTRY: entry.to_string() })
}

/// An action whose id was used for another one.
pub(crate) fn another_action(id: ActionId, there: Action, asked: Action) -> super::StoreError {
    let text = format!("action {id} is there already: a {there}, not a {asked}");
    super::StoreError::Conflict(text)
}

/// What an action answered when it was done, as its entry says.
pub(crate) fn answer_of<T: serde::de::DeserializeOwned>(
    id: ActionId,
    detail: Option<&str>,
) -> Result<T, super::StoreError> {
    #[derive(serde::Deserialize)]
    struct Detail<T> {
        answer: T,
    }
    let detail = serde_json::from_str::<Detail<T>>(detail.unwrap_or("null"));
    let wrong = |error| {
        // Whoever writes entries by hand may have used the id.
        super::StoreError::Conflict(format!(
            "action {id} is another one: its entry in the log has no such detail ({error})"
        ))
    };
    detail.map(|detail| detail.answer).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_survive_their_word() {
        for action in Action::ALL {
            assert_eq!(action.word().parse(), Ok(action));
        }
        assert!("destroy".parse::<Action>().is_err());
    }

    #[test]
    fn a_refusal_has_the_entry_and_the_start_of_the_reason() {
        let entry = ActionId::from_random(7);
        let detail = refusal(entry, &"é".repeat(REASON_CHARS_MAX + 1));
        let reason = detail[REFUSED].as_str().expect("it is text");
        assert_eq!(reason.chars().count(), REASON_CHARS_MAX);
        assert_eq!(detail[REFUSED_ENTRY], entry.to_string());
    }
}
