//! How long runs that are over are kept.
//!
//! Nothing goes unless a rule says so. A rule is about runs that ended in one state, of one
//! workflow or of all that have no rule of their own for it. The duty [`Duty::Prune`](super::Duty)
//! deletes what is older than its rule says, in small batches, with all that belongs to it.
//!
//! What others still need stays, however old it is: a run that is not over, one that a function
//! started for as long as that run is there, what is being undone and what undid it, and, unless
//! the rule says otherwise, a failed run with [dead letters](super::DeadLetter).

use std::time::Duration;

use windlass_core::retry::WAIT_MAX;
use windlass_core::{Payload, RunId, RunState, Tenant, Timestamp, Version, WorkflowName};

/// The most runs that one sweep deletes.
pub const PRUNE_MAX: usize = 100;

/// The most tasks of all runs together that one sweep deletes, unless one run alone has more.
pub const PRUNE_TASKS_MAX: usize = 10_000;

/// The most rules.
pub const RETENTION_RULES_MAX: usize = 1_000;

/// How long runs are kept that ended in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionRule {
    /// Of which workflow; of all that have no rule of their own for this state if none.
    pub workflow: Option<WorkflowName>,
    /// How they ended.
    pub state: RunState,
    /// How long after its end a run goes.
    pub keep_for: Duration,
    /// How long after the end of a run its idempotency key is kept, if that is longer: a start
    /// with the key answers the run that is gone.
    pub keep_key_for: Duration,
    /// Whether what was known of a run goes to the archive when it goes.
    pub archives: bool,
    /// Whether failed runs go that have dead letters, and the dead letters with them.
    pub with_dead_letters: bool,
}

impl RetentionRule {
    /// Runs of all workflows that ended like this go after this time.
    pub fn new(state: RunState, keep_for: Duration) -> Self {
        RetentionRule {
            workflow: None,
            state,
            keep_for,
            keep_key_for: Duration::ZERO,
            archives: false,
            with_dead_letters: false,
        }
    }

    /// Checks what the types do not. The error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        let whose = match &self.workflow {
            Some(workflow) => format!("runs of workflow {workflow:?}"),
            None => "runs".to_owned(),
        };
        if !self.state.is_final() {
            return Err(format!("{whose} that are {} are not over and cannot go", self.state));
        }
        for (what, time) in [("are", self.keep_for), ("leave a key that is", self.keep_key_for)] {
            if time > WAIT_MAX {
                let state = self.state;
                return Err(format!(
                    "{whose} that are {state} {what} to be kept for {time:?}, the limit is \
                     {WAIT_MAX:?}"
                ));
            }
        }
        Ok(())
    }
}

/// The rule for a run of a workflow that ended like this.
pub(crate) fn rule_for<'a>(
    rules: &'a [RetentionRule],
    workflow: &WorkflowName,
    state: RunState,
) -> Option<&'a RetentionRule> {
    let of = |name: Option<&WorkflowName>| {
        rules.iter().find(|rule| rule.state == state && rule.workflow.as_ref() == name)
    };
    of(Some(workflow)).or_else(|| of(None))
}

/// There are as many rules as there may be.
pub(crate) fn too_many() -> super::StoreError {
    let text = format!("there are {RETENTION_RULES_MAX} rules of retention, which is the limit");
    super::StoreError::Conflict(text)
}

/// A run that is gone and was archived.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchivedRun {
    /// The run.
    pub id: RunId,
    /// The workflow.
    pub workflow: WorkflowName,
    /// The version of the workflow.
    pub version: Version,
    /// Whose run it was.
    pub tenant: Tenant,
    /// How it ended.
    pub state: RunState,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// When it was archived.
    pub archived_at: Timestamp,
    /// What was known of it: an object with its `input`, `key`, `metadata` and `round`, its
    /// `tasks` with their outputs and failures, and its `history`.
    pub body: Payload,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_has_its_own_rule_or_that_of_all() {
        let name = |name: &str| WorkflowName::new(name).expect("it is a name");
        let hour = Duration::from_secs(3_600);
        let all = RetentionRule::new(RunState::Succeeded, hour);
        let own = RetentionRule { workflow: Some(name("mail")), keep_for: 2 * hour, ..all.clone() };
        let rules = [all.clone(), own.clone()];
        let found = |workflow: &str, state| rule_for(&rules, &name(workflow), state).cloned();
        assert_eq!(found("mail", RunState::Succeeded), Some(own));
        assert_eq!(found("order", RunState::Succeeded), Some(all));
        assert_eq!(found("mail", RunState::Failed), None);
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        let rule = |state, keep_for| RetentionRule::new(state, keep_for).check();
        assert_eq!(rule(RunState::Failed, Duration::ZERO), Ok(()));
        let error = rule(RunState::Running, Duration::ZERO).expect_err("it is not over");
        assert_eq!(error, "runs that are running are not over and cannot go");
        assert!(rule(RunState::Failed, WAIT_MAX).is_ok());
        assert!(rule(RunState::Failed, WAIT_MAX + Duration::from_secs(1)).is_err());
    }
}
