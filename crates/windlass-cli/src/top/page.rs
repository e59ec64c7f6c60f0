//! One picture of `windlass top`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use windlass::store::{QueueList, QueueRecord, WorkerRecord, WorkerState};
use windlass::{Priority, Timestamp};

use super::Snapshot;
use crate::text::{age, ago, count, listing, shown, terminal_width, thousands};

/// The most workers that are shown: those with the most tasks.
const WORKERS_MAX: usize = 20;

/// A queue that nothing was counted of for longer than two rollups has not changed.
const STILL_AFTER: Duration = Duration::from_secs(25);

/// What a picture shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    All,
    Queues,
    Leaders,
    Workers,
}

impl View {
    pub(super) const fn next(self) -> Self {
        match self {
            View::All => View::Queues,
            View::Queues => View::Leaders,
            View::Leaders => View::Workers,
            View::Workers => View::All,
        }
    }

    pub(super) const fn previous(self) -> Self {
        match self {
            View::All => View::Workers,
            View::Queues => View::All,
            View::Leaders => View::Queues,
            View::Workers => View::Leaders,
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            View::All => "all",
            View::Queues => "queues",
            View::Leaders => "leaders",
            View::Workers => "workers",
        }
    }
}

/// How many lines standard output has, if it is a terminal that says so.
pub(super) fn terminal_height() -> usize {
    #[cfg(unix)]
    if let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout())
        && size.ws_row > 0
    {
        return usize::from(size.ws_row);
    }
    usize::MAX
}

/// How much comes and goes in a second, from one rollup to the next.
#[derive(Debug, Default)]
pub(super) struct Rates {
    known: BTreeMap<(String, Priority), Known>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    came: u64,
    went: u64,
    at: Timestamp,
    rate: Option<(f64, f64)>,
}

impl Rates {
    /// Compares the counts with those before.
    pub(super) fn learn(&mut self, list: &QueueList) {
        for queue in &list.queues {
            let key = (queue.queue.to_string(), queue.priority);
            let (came, went, at) = (queue.came, queue.went, queue.changed_at);
            let rate = self.known.get(&key).and_then(|last| {
                let seconds = at.since(last.at).as_secs_f64();
                if seconds > 0.0 {
                    let per_second =
                        |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
                    return Some((per_second(came, last.came), per_second(went, last.went)));
                }
                let is_still = list.at.since(at) > STILL_AFTER;
                if is_still { Some((0.0, 0.0)) } else { last.rate }
            });
            self.known.insert(key, Known { came, went, at, rate });
        }
    }

    fn of(&self, queue: &QueueRecord) -> Option<(f64, f64)> {
        self.known.get(&(queue.queue.to_string(), queue.priority))?.rate
    }
}

/// What one picture is made of.
pub(super) struct Page<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) rates: &'a Rates,
}

/// A rate as people read it; a dash if it is not known yet.
fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate >= 100.0 => thousands(rate.round() as u64),
        Some(rate) => format!("{rate:.1}"),
    }
}

impl Page<'_> {
    /// Renders all views in at most `lines_max` lines.
    pub(super) fn text(&self, lines_max: usize) -> String {
        self.text_of(View::All, lines_max)
    }

    /// Renders one view in at most `lines_max` lines.
    pub(super) fn text_of(&self, view: View, lines_max: usize) -> String {
        let head = self.head();
        let parts = match view {
            View::All => vec![head, self.queues(), self.leaders(), self.workers()],
            View::Queues => vec![head, self.queues()],
            View::Leaders => vec![head, self.leaders()],
            View::Workers => vec![head, self.workers()],
        };
        let text = parts.join("\n");
        let width = terminal_width().map_or(usize::MAX, usize::from);
        let cut = |line: &str| line.chars().take(width).collect::<String>();
        let lines: Vec<String> = text.lines().take(lines_max).map(cut).collect();
        lines.join("\n") + "\n"
    }

    fn live(&self) -> impl Iterator<Item = &WorkerRecord> {
        self.snapshot.workers.iter()
    }

    fn head(&self) -> String {
        let queues = &self.snapshot.queues;
        let (tasks, slots) = self.live().fold((0, 0), |(tasks, slots), worker| {
            (tasks + worker.tasks, slots + u64::from(worker.slots))
        });
        let sum = |which: fn((f64, f64)) -> f64| {
            let all = queues.queues.iter().map(|queue| self.rates.of(queue).map(which));
            let known: Vec<f64> = all.flatten().collect();
            (!known.is_empty()).then(|| known.iter().sum())
        };
        let ready: u64 = queues.queues.iter().map(QueueRecord::ready).sum();
        let more = if self.snapshot.has_more { " or more" } else { "" };
        let title = "windlass top";
        let counted = match queues.counted_at {
            Some(at) => format!("queues counted {} ago", age(queues.at.since(at))),
            None => "queues not counted yet".to_owned(),
        };
        format!(
            "{title}  {}  {counted}\n{}{more}, {} of {} slots taken; {} ready, {}/s come, {}/s go\n",
            queues.at,
            count(self.snapshot.workers.len(), "worker"),
            thousands(tasks),
            thousands(slots),
            thousands(ready),
            per_second(sum(|(came, _)| came)),
            per_second(sum(|(_, went)| went)),
        )
    }

    /// How many workers serve a queue.
    fn serving(&self, queue: &QueueRecord) -> usize {
        let serves = |worker: &&WorkerRecord| {
            worker.state == WorkerState::Live && worker.info.queues.contains(&queue.queue)
        };
        self.live().filter(serves).count()
    }

    fn queues(&self) -> String {
        let list = &self.snapshot.queues;
        if list.queues.is_empty() {
            return "no queue has ever had a task\n".to_owned();
        }
        let header = ["queue", "priority", "ready", "oldest", "come/s", "go/s", "workers"];
        let row = |queue: &QueueRecord| {
            let rate = self.rates.of(queue);
            vec![
                shown(queue.queue.as_str()),
                queue.priority.get().to_string(),
                thousands(queue.ready()),
                ago(queue.oldest_at, list.at),
                per_second(rate.map(|(came, _)| came)),
                per_second(rate.map(|(_, went)| went)),
                self.serving(queue).to_string(),
            ]
        };
        listing(&header, &[1, 2, 4, 5, 6], list.queues.iter().map(row))
    }

    fn leaders(&self) -> String {
        crate::leaders::table(&self.snapshot.leaders, self.snapshot.queues.at)
    }

    fn workers(&self) -> String {
        let mut workers: Vec<&WorkerRecord> = self.live().collect();
        if workers.is_empty() {
            return "no workers\n".to_owned();
        }
        workers.sort_by(|a, b| b.tasks.cmp(&a.tasks).then_with(|| a.name.cmp(&b.name)));
        let header = ["worker", "state", "host", "tasks", "joined", "seen"];
        let now = self.snapshot.queues.at;
        let row = |worker: &&WorkerRecord| {
            vec![
                shown(&worker.name),
                worker.state.to_string(),
                shown(&worker.info.host),
                format!("{}/{}", worker.tasks, worker.slots),
                ago(Some(worker.joined_at), now),
                ago(worker.seen_at, now),
            ]
        };
        let mut text = listing(&header, &[3], workers.iter().take(WORKERS_MAX).map(row));
        if workers.len() > WORKERS_MAX {
            text += &format!("and {} more\n", thousands((workers.len() - WORKERS_MAX) as u64));
        }
        text
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        let list = &self.snapshot.queues;
        let queue = |queue: &QueueRecord| {
            let rate = self.rates.of(queue);
            json!({
                "queue": queue.queue,
                "priority": queue.priority.get(),
                "ready": queue.ready(),
                "came": queue.came,
                "went": queue.went,
                "oldest_at": queue.oldest_at.map(|at| at.to_string()),
                "come_per_second": rate.map(|(came, _)| came),
                "go_per_second": rate.map(|(_, went)| went),
                "workers": self.serving(queue),
            })
        };
        let leaders = self.snapshot.leaders.iter();
        json!({
            "at": list.at.to_string(),
            "counted_at": list.counted_at.map(|at| at.to_string()),
            "queues": list.queues.iter().map(queue).collect::<Vec<_>>(),
            "workers": self.snapshot.workers.iter().map(crate::workers::json).collect::<Vec<_>>(),
            "leaders": leaders.map(|it| crate::leaders::json(it, list.at)).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(seconds: u64, counts: &[(&str, u64, u64, u64)]) -> QueueList {
        let at = |seconds: u64| {
            Timestamp::from_micros(1_750_000_000_000_000) + Duration::from_secs(seconds)
        };
        let record = |(name, came, went, changed): &(&str, u64, u64, u64)| QueueRecord {
            queue: windlass::QueueName::new(*name).expect("it is one"),
            priority: Priority::default(),
            came: *came,
            went: *went,
            changed_at: at(*changed),
            oldest_at: None,
        };
        let queues = counts.iter().map(record).collect();
        QueueList { at: at(seconds), counted_at: Some(at(seconds)), queues }
    }

    #[test]
    fn rates_are_those_between_two_rollups_and_end_when_nothing_changes() {
        let mut rates = Rates::default();
        let first = list(0, &[("mail", 100, 50, 0)]);
        rates.learn(&first);
        assert_eq!(rates.of(&first.queues[0]), None);
        let second = list(10, &[("mail", 300, 60, 10)]);
        rates.learn(&second);
        assert_eq!(rates.of(&second.queues[0]), Some((20.0, 1.0)));
        rates.learn(&list(12, &[("mail", 300, 60, 10)]));
        assert_eq!(rates.of(&second.queues[0]), Some((20.0, 1.0)), "it was not counted since");
        rates.learn(&list(36, &[("mail", 300, 60, 10)]));
        assert_eq!(rates.of(&second.queues[0]), Some((0.0, 0.0)));
    }

    #[test]
    fn a_picture_fits_its_lines_and_says_what_is_not_known() {
        let queues = list(0, &[("mail", 1_300, 50, 0)]);
        let snapshot =
            Snapshot { queues, workers: Vec::new(), has_more: false, leaders: Vec::new() };
        let rates = Rates::default();
        let page = Page { snapshot: &snapshot, rates: &rates };
        let text = page.text(usize::MAX);
        assert!(text.contains("0 workers, 0 of 0 slots taken; 1,250 ready, -/s come"), "{text}");
        assert_eq!(page.text(3).lines().count(), 3);
        assert_eq!(page.json()["queues"][0]["ready"], 1_250);
    }
    #[test]
    fn the_name_of_a_queue_cannot_steer_a_terminal() {
        let queues = list(0, &[("mail\u{202e}\u{2066}\u{200b}", 2, 1, 0)]);
        let snapshot =
            Snapshot { queues, workers: Vec::new(), has_more: false, leaders: Vec::new() };
        let text = Page { snapshot: &snapshot, rates: &Rates::default() }.text(usize::MAX);
        assert!(text.contains(r"mail\u{202e}\u{2066}\u{200b}"), "{text}");
    }
}
