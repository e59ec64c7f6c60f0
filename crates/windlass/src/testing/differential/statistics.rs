//! What a story has met: a comparison of stores that were never asked anything
//! interesting shows nothing.

use std::collections::BTreeMap;
use std::fmt;

use windlass_core::why::{Missing, Served};
use windlass_core::{Event, EventBody, Reason, TaskEventKind, Why};

use super::reply::Reply;

/// How often each kind of answer was given and each kind of event recorded.
///
/// The keys are words such as `finish: accepted already` or `event: retrying`; the
/// text form lists all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(BTreeMap<String, u64>);

impl Statistics {
    /// How often this kind of answer or event was met.
    pub fn count(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Every kind that was met, with its number.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(kind, count)| (kind.as_str(), *count))
    }

    /// Adds what another story has met.
    pub fn add(&mut self, other: &Statistics) {
        for (kind, count) in other.iter() {
            *self.0.entry(kind.to_owned()).or_default() += count;
        }
    }

    pub(super) fn count_reply(&mut self, verb: &str, reply: &Reply) {
        for kind in reply.kinds() {
            *self.0.entry(format!("{verb}: {kind}")).or_default() += 1;
        }
    }

    pub(super) fn count_why(&mut self, why: &Why) {
        let of_tasks = why.tasks.iter().flat_map(|task| &task.reasons);
        for reason in why.reasons.iter().chain(of_tasks) {
            let served = if let Reason::Ready { served, .. } = reason { word(served) } else { "" };
            *self.0.entry(format!("why: {}{served}", reason.word())).or_default() += 1;
        }
    }

    pub(super) fn count_event(&mut self, event: &Event) {
        let is_last = match &event.body {
            EventBody::Task(body) => {
                matches!(body.kind, TaskEventKind::LeaseExpired { failure: Some(_), .. })
            }
            EventBody::Run(_) => false,
        };
        let end = if is_last { " for the last time" } else { "" };
        *self.0.entry(format!("event: {}{end}", event.word())).or_default() += 1;
    }
}

/// Who serves a task that is ready.
fn word(served: &Served) -> &'static str {
    match served {
        Served::Free { .. } => ", with free slots",
        Served::Owner { .. } => ", with an owner",
        Served::Busy { .. } => ", with busy workers",
        Served::Nobody { missing: Missing::Worker } => ", without a worker",
        Served::Nobody { missing: Missing::Queue { .. } } => ", without its queue",
        Served::Nobody { missing: Missing::Workflow { .. } } => ", without its workflow",
        Served::Nobody { missing: Missing::Version { .. } } => ", without its version",
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(kind, count)| writeln!(f, "{count:>8}  {kind}"))
    }
}
