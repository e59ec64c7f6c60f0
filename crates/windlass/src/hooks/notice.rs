//! What a hook is told, and by which name it is told only once.

use serde::{Deserialize, Serialize};
use windlass_core::{QueueName, RunId, Timestamp, Version};

use super::Trouble;
use crate::store::{DeadLetter, RunRecord};

/// The most characters that are sent of an error, and kept of a command's complaints.
pub(super) const ERROR_CHARS_MAX: usize = 500;

/// The most tasks of a failed run that are told of.
pub(super) const TASKS_TOLD_MAX: usize = 10;

/// A notification: the input of the run that delivers it, and with its id what is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Notice {
    pub(super) hook: String,
    pub(super) trouble: String,
    /// When it happened, or was seen to be so.
    at: String,
    #[serde(flatten)]
    about: About,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum About {
    Run {
        run: RunId,
        round: u32,
        workflow: String,
        version: Version,
        tenant: String,
        tasks: Vec<FailedTask>,
    },
    Task {
        run: RunId,
        round: u32,
        workflow: String,
        version: Version,
        tenant: String,
        queue: String,
        #[serde(flatten)]
        task: FailedTask,
    },
    Queue {
        queue: String,
        ready: u64,
        oldest_seconds: u64,
        threshold_seconds: f64,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FailedTask {
    task: String,
    code: String,
    error: String,
    attempts: u32,
}

impl FailedTask {
    fn of(letter: &DeadLetter) -> Self {
        FailedTask {
            task: letter.name.to_string(),
            code: letter.failure.code.word().to_owned(),
            error: cut(&letter.failure.message),
            attempts: letter.attempts,
        }
    }
}

/// What is known of a queue.
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    pub(super) queue: QueueName,
    pub(super) ready: u64,
    pub(super) oldest_at: Timestamp,
}

impl Notice {
    /// That a run failed, with its dead letters, the newest first.
    pub(super) fn of_run(hook: &str, run: &RunRecord, letters: &[DeadLetter]) -> Self {
        let told = letters.iter().filter(|letter| letter.round == run.round).take(TASKS_TOLD_MAX);
        let about = About::Run {
            run: run.id,
            round: run.round,
            workflow: run.workflow.to_string(),
            version: run.version,
            tenant: run.tenant.to_string(),
            tasks: told.map(FailedTask::of).collect(),
        };
        Notice::new(hook, Trouble::RunFailed, run.ended_at.unwrap_or(run.created_at), about)
    }

    /// That a task failed for good.
    pub(super) fn of_letter(hook: &str, letter: &DeadLetter) -> Self {
        let about = About::Task {
            run: letter.task.run,
            round: letter.round,
            workflow: letter.workflow.to_string(),
            version: letter.version,
            tenant: letter.tenant.to_string(),
            queue: letter.queue.to_string(),
            task: FailedTask::of(letter),
        };
        Notice::new(hook, Trouble::DeadLetter, letter.failed_at, about)
    }

    /// That a queue is not as it should be.
    pub(super) fn of_queue(hook: &str, trouble: Trouble, at: Timestamp, backlog: &Backlog) -> Self {
        let about = About::Queue {
            queue: backlog.queue.to_string(),
            ready: backlog.ready,
            oldest_seconds: at.since(backlog.oldest_at).as_secs(),
            threshold_seconds: trouble.threshold().unwrap_or_default().as_secs_f64(),
        };
        Notice::new(hook, trouble, at, about)
    }

    fn new(hook: &str, trouble: Trouble, at: Timestamp, about: About) -> Self {
        let (hook, trouble) = (hook.to_owned(), trouble.word().to_owned());
        Notice { hook, trouble, at: at.to_string(), about }
    }

    /// What is sent: one object, with the id of the run that sends it, which stays the same however
    /// often it is tried.
    pub(super) fn body(&self, id: RunId) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Body<'n> {
            id: RunId,
            #[serde(flatten)]
            notice: &'n Notice,
        }
        serde_json::to_string(&Body { id, notice: self })
    }
}

/// The beginning of a text, if it is long.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_is_cut_between_characters() {
        let long = "ä".repeat(ERROR_CHARS_MAX + 1);
        assert_eq!(cut(&long), format!("{}…", "ä".repeat(ERROR_CHARS_MAX)));
        assert_eq!(cut(&long[2..]), long[2..]);
    }
}
