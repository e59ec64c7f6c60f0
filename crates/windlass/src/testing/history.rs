//! Histories that are easy to look at and to make assertions on.

use std::fmt;

use windlass_core::{Event, EventBody, Fence};

/// What happened to a run, with assertions.
///
/// An event is written as its task and its word (`charge started`), or as its word
/// alone if it is the run's (`run_started`). Every assertion prints the whole
/// history when it fails.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// The history made of these events.
    pub fn new(events: Vec<Event>) -> Self {
        History { events }
    }

    /// The events themselves.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// All events as text, in order.
    pub fn lines(&self) -> Vec<String> {
        self.events.iter().map(line).collect()
    }

    /// The words of one task's events, in order.
    pub fn of(&self, task: &str) -> Vec<&'static str> {
        let mine = |event: &&Event| event.task().is_some_and(|e| e.name.as_str() == task);
        self.events.iter().filter(mine).map(Event::word).collect()
    }

    /// The names of the tasks that were started, in the order of their starts.
    pub fn starts(&self) -> Vec<&str> {
        let started = self.events.iter().filter(|event| event.word() == "started");
        started.filter_map(Event::task).map(|event| event.name.as_str()).collect()
    }

    /// The fences a task was started with, in order.
    pub fn fences(&self, task: &str) -> Vec<Fence> {
        let started = self.events.iter().filter(|event| event.word() == "started");
        let mine = started.filter_map(Event::task).filter(|event| event.name.as_str() == task);
        mine.map(|event| event.fence).collect()
    }

    /// Asserts that exactly these words were written of a task, in this order.
    ///
    /// # Panics
    ///
    /// If it is otherwise.
    #[track_caller]
    pub fn assert_task(&self, task: &str, words: &[&str]) {
        assert_eq!(self.of(task), words, "history of {task:?}, in the run's history:\n{self}");
    }

    /// Asserts that both events happened, the first one first. Events are given as
    /// in [`lines`](History::lines); the first of each counts.
    ///
    /// # Panics
    ///
    /// If it is otherwise.
    #[track_caller]
    pub fn assert_before(&self, first: &str, second: &str) {
        let lines = self.lines();
        let place = |wanted: &str| lines.iter().position(|line| line == wanted);
        let (Some(first_at), Some(second_at)) = (place(first), place(second)) else {
            panic!("{first:?} and {second:?} are not both in the history:\n{self}");
        };
        assert!(first_at < second_at, "{second:?} came before {first:?}:\n{self}");
    }

    /// Asserts that something never happened, given as in
    /// [`lines`](History::lines).
    ///
    /// # Panics
    ///
    /// If it did.
    #[track_caller]
    pub fn assert_never(&self, event: &str) {
        assert!(!self.lines().iter().any(|line| line == event), "{event:?} happened:\n{self}");
    }
}

fn line(event: &Event) -> String {
    match &event.body {
        EventBody::Task(task) => format!("{} {}", task.name, event.word()),
        EventBody::Run(_) => event.word().to_owned(),
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            write!(f, "{} {}", event.at, line(event))?;
            match &event.body {
                EventBody::Task(task) => writeln!(
                    f,
                    " ({} → {}, fence {}, attempt {})",
                    task.from, task.to, task.fence, task.attempt
                )?,
                EventBody::Run(run) => writeln!(f, " ({})", run.to)?,
            }
        }
        Ok(())
    }
}
