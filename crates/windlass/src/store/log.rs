//! What operators did by hand: who, what, when and to what.
//!
//! The log only grows: no verb changes or deletes an entry. What is done to dead letters is
//! written down in the operation that does it. What else is done from the command line is written
//! down before it is done, so that nothing is done without a line; whether it was done then is in
//! the history of its run.

use std::fmt;

use windlass_core::{ActionId, Operator, Payload, RunId, Tenant, Timestamp};

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
    /// Sets a quota.
    SetQuota,
    /// Deletes a quota.
    ClearQuota,
}

impl Action {
    /// Every action.
    pub const ALL: [Action; 16] = [
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

/// An entry to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewLogEntry {
    /// Chosen by whoever writes it: repeated with the same id, it is written once.
    pub id: ActionId,
    /// Who does it.
    pub by: Operator,
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
    pub by: Operator,
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
}
