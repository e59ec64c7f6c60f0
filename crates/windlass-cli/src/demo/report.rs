//! What a worker process tells the demo: one line of JSON per report on its standard
//! output.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;

use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::span;
use windlass::{Ctx, Fence, RunId, TaskName};

use super::faults::Blow;
use super::orders::Order;

/// One try of a task, as a worker process knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Try {
    pub(super) run: RunId,
    pub(super) task: TaskName,
    pub(super) attempt: u32,
    pub(super) fence: Fence,
}

impl Try {
    pub(super) fn of(ctx: &Ctx<Order>) -> Self {
        let (run, task) = (ctx.run_id(), ctx.task().clone());
        Try { run, task, attempt: ctx.attempt(), fence: ctx.fence() }
    }
}

/// What a worker process says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// A handler was called whose worker is to be struck.
    Began { tried: Try, blow: Blow },
    /// The engine logged a warning or an error.
    Logged(LogLine),
}

/// A line of the engine's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogLine {
    pub(super) message: String,
    pub(super) fields: BTreeMap<String, String>,
}

impl LogLine {
    /// Whether it says that the store refused a write of this try.
    pub(super) fn refuses(&self, tried: &Try) -> bool {
        let is = |name: &str, wanted: &dyn Fn(&str) -> bool| {
            self.fields.get(name).is_some_and(|value| wanted(value))
        };
        let run = format!("{}/", tried.run);
        self.message == "refused"
            && is("task", &|task| task.starts_with(&run))
            && is("fence", &|fence| fence == tried.fence.to_string())
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl Report {
    /// Writes the report as a line. If nobody reads it any more, it is lost: the
    /// process is about to end then.
    pub(super) fn send(&self) {
        let line = serde_json::to_string(self).expect("a report has a JSON form");
        let _ = writeln!(std::io::stdout(), "{line}");
    }

    /// Reads a line that was sent.
    pub(super) fn parse(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }
}

/// Sends what the engine logs from the level of warnings on. Not a logger for general
/// use: spans are not followed.
pub(super) struct LogSender;

impl tracing::Subscriber for LogSender {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN && metadata.target().starts_with("windlass")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = LogLine::default();
        event.record(&mut line);
        Report::Logged(line).send();
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = value,
            name => drop(self.fields.insert(name.to_owned(), value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(fence: u64) -> Try {
        let run = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        Try { run, task: TaskName::new("ship").unwrap(), attempt: 1, fence: Fence(fence) }
    }

    #[test]
    fn a_report_is_read_as_it_was_sent() {
        let report = Report::Began { tried: tried(3), blow: Blow::Kill };
        let line = serde_json::to_string(&report).unwrap();
        assert_eq!(Report::parse(&line).unwrap(), report);
        assert!(Report::parse("hello").is_err());
    }

    #[test]
    fn a_refusal_is_known_by_its_task_and_fence() {
        let mut line = LogLine { message: "refused".to_owned(), ..LogLine::default() };
        line.fields.insert("task".to_owned(), format!("{}/3", tried(1).run));
        line.fields.insert("fence".to_owned(), "1".to_owned());
        assert!(line.refuses(&tried(1)));
        assert!(!line.refuses(&tried(11)));
        line.message = "task lost".to_owned();
        assert!(!line.refuses(&tried(1)));
    }
}
