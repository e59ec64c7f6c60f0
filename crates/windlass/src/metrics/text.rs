//! What was counted, in the text format of Prometheus.

use std::fmt::{self, Write as _};
use std::sync::PoisonError;
use std::time::Duration;

use windlass_core::Timestamp;

use super::{Histogram, Metrics, Outcome, QUEUES_MAX, REFUSALS, Verb};
use crate::store::{Connections, Duty, QueueList};

/// A text under way.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

/// What is known of one worker at this moment.
#[derive(Clone, Debug)]
pub(crate) struct WorkerGauges {
    pub(crate) name: String,
    pub(crate) slots: usize,
    pub(crate) running: usize,
    pub(crate) is_ready: bool,
}

/// The kind of a family of metrics.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        })
    }
}

/// The labels of a sample.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    pub(crate) fn into_string(self) -> String {
        self.0
    }

    /// Writing to a string never fails.
    fn put(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(text);
    }

    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl fmt::Display) {
        self.put(format_args!("{name}"));
        for (place, (label, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            self.put(format_args!("{before}{label}=\"{}\"", Escaped(value)));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        self.put(format_args!("{after} {value}\n"));
    }

    fn histogram(&mut self, name: &str, labels: Labels<'_>, histogram: &Histogram) {
        let counted = histogram.counted();
        let bucket = format!("{name}_bucket");
        let mut with_bound = labels.to_vec();
        with_bound.push(("le", ""));
        let last = with_bound.len() - 1;
        for (bound, count) in counted.up_to {
            let bound = bound.to_string();
            let mut labels: Vec<(&str, &str)> = with_bound.clone();
            labels[last] = ("le", &bound);
            self.sample(&bucket, &labels, count);
        }
        with_bound[last] = ("le", "+Inf");
        self.sample(&bucket, &with_bound, counted.count);
        self.sample(&format!("{name}_sum"), labels, counted.sum);
        self.sample(&format!("{name}_count"), labels, counted.count);
    }

    /// A family of one sample without labels.
    fn alone(&mut self, name: &str, kind: Kind, help: &str, value: impl fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// What is in the queues; of many, the first.
    pub(crate) fn queues(&mut self, list: &QueueList) {
        let age = |since: Option<Timestamp>| {
            since.map_or(Duration::ZERO, |since| list.at.since(since)).as_secs_f64()
        };
        let mut queues: Vec<_> = list.queues.iter().collect();
        // Where there are too many, those with the most ready tasks.
        queues.sort_by_key(|queue| std::cmp::Reverse(queue.ready()));
        let untold = queues.len().saturating_sub(QUEUES_MAX);
        queues.truncate(QUEUES_MAX);
        queues.sort_by_key(|queue| (&queue.queue, std::cmp::Reverse(queue.priority)));
        let priorities: Vec<String> =
            queues.iter().map(|it| it.priority.get().to_string()).collect();
        let rows: Vec<_> = queues.iter().zip(&priorities).collect();
        let mut write = |name: &str, kind, help: &str, value: &dyn Fn(usize) -> f64| {
            self.family(name, kind, help);
            for (place, (queue, priority)) in rows.iter().enumerate() {
                let labels = [("queue", queue.queue.as_str()), ("priority", priority.as_str())];
                self.sample(name, &labels, value(place));
            }
        };
        let name = "windlass_queue_ready";
        let help = "Tasks that are ready, as of the last rollup.";
        write(name, Kind::Gauge, help, &|place| queues[place].ready() as f64);
        let name = "windlass_queue_oldest_age_seconds";
        let help = "How long the task is ready that is so for the longest time.";
        write(name, Kind::Gauge, help, &|place| age(queues[place].oldest_at));
        let name = "windlass_queue_came_total";
        let help = "Tasks that became ready, of all processes.";
        write(name, Kind::Counter, help, &|place| queues[place].came as f64);
        let name = "windlass_queue_went_total";
        let help = "Tasks that are not ready any more: claimed, or cancelled, of all processes.";
        write(name, Kind::Counter, help, &|place| queues[place].went as f64);
        let help = "Queues and priorities beyond the 100 with the most ready tasks.";
        self.alone("windlass_queues_untold", Kind::Gauge, help, untold);
        if let Some(counted_at) = list.counted_at {
            let name = "windlass_queue_counted_age_seconds";
            let help = "How long ago the queues were last counted.";
            self.alone(name, Kind::Gauge, help, age(Some(counted_at)));
        }
    }

    /// Whether the store answered.
    pub(crate) fn store(&mut self, is_up: bool, connections: Option<Connections>) {
        let help = "Whether the store answered this scrape.";
        self.alone("windlass_store_up", Kind::Gauge, help, u8::from(is_up));
        let Some(Connections { most, open, idle, waiting }) = connections else { return };
        let name = "windlass_pool_connections";
        self.family(name, Kind::Gauge, "Connections to the database.");
        self.sample(name, &[("state", "in_use")], open.saturating_sub(idle));
        self.sample(name, &[("state", "idle")], idle);
        let help = "The most connections that there may be.";
        self.alone("windlass_pool_connections_max", Kind::Gauge, help, most);
        let help = "Callers that wait for a connection.";
        self.alone("windlass_pool_waiting", Kind::Gauge, help, waiting);
    }

    /// How a worker is.
    pub(crate) fn worker(&mut self, worker: &WorkerGauges) {
        let labels = [("worker", worker.name.as_str())];
        let mut write = |name: &str, help: &str, value: usize| {
            self.family(name, Kind::Gauge, help);
            self.sample(name, &labels, value);
        };
        write("windlass_worker_slots", "Tasks that the worker runs at once.", worker.slots);
        write("windlass_worker_running", "Tasks that the worker has in hand.", worker.running);
        let help = "Whether the worker takes tasks.";
        write("windlass_worker_ready", help, usize::from(worker.is_ready));
    }
}

impl Metrics {
    /// Writes what this process has counted.
    pub(crate) fn write(&self, text: &mut Text) {
        let name = "windlass_build_info";
        text.family(name, Kind::Gauge, "The version of Windlass.");
        text.sample(name, &[("version", env!("CARGO_PKG_VERSION"))], 1);
        let (name, help) = ("windlass_runs_started_total", "Runs started by this process.");
        text.alone(name, Kind::Counter, help, self.runs_started.get());
        self.write_tasks(text);
        self.write_verbs(text);
        self.write_duties(text);
    }

    fn write_tasks(&self, text: &mut Text) {
        let name = "windlass_tasks_claimed_total";
        text.family(name, Kind::Counter, "Tasks that workers of this process were given.");
        let claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (queue, count) in &claimed {
            text.sample(name, &[("queue", queue.as_str())], count);
        }
        let name = "windlass_tasks_claimed_elsewhere_total";
        let help = "Tasks of queues beyond the first 100.";
        text.alone(name, Kind::Counter, help, self.claimed_elsewhere.get());
        let name = "windlass_attempts_total";
        text.family(name, Kind::Counter, "Attempts by what became of them.");
        for outcome in Outcome::ALL {
            let count = self.outcomes[outcome as usize].get();
            text.sample(name, &[("outcome", outcome.word())], count);
        }
        let name = "windlass_refusals_total";
        text.family(name, Kind::Counter, "Writes of workers that were refused.");
        for ((_, word), count) in REFUSALS.iter().zip(&self.refusals) {
            text.sample(name, &[("reason", word)], count.get());
        }
        let help = "Leases that ran out while their workers lived.";
        text.alone("windlass_leases_lost_total", Kind::Counter, help, self.leases_lost.get());
        let help = "Tasks that were taken away from workers of this process.";
        text.alone("windlass_tasks_lost_total", Kind::Counter, help, self.tasks_lost.get());
    }

    fn write_verbs(&self, text: &mut Text) {
        let name = "windlass_verb_seconds";
        text.family(name, Kind::Histogram, "How long workers wait for the store.");
        for verb in Verb::ALL {
            text.histogram(name, &[("verb", verb.word())], &self.verb(verb).seconds);
        }
        let name = "windlass_verb_errors_total";
        text.family(name, Kind::Counter, "Calls of workers to the store that failed.");
        for verb in Verb::ALL {
            text.sample(name, &[("verb", verb.word())], self.verb(verb).errors.get());
        }
        let name = "windlass_batch_size";
        text.family(name, Kind::Histogram, "Tasks of one call to the store.");
        text.histogram(name, &[("verb", "claim")], &self.claim_sizes);
        text.histogram(name, &[("verb", "finish")], &self.finish_sizes);
    }

    fn write_duties(&self, text: &mut Text) {
        let name = "windlass_duty_seconds";
        text.family(name, Kind::Histogram, "How long sweeps of background duties took.");
        for duty in Duty::ALL {
            text.histogram(name, &[("duty", duty.word())], &self.duty(duty).seconds);
        }
        type Read = fn(&super::DutyMetrics) -> u64;
        let counters: [(&str, &str, Read); 4] = [
            ("windlass_duty_items_total", "What sweeps moved.", |it| it.items.get()),
            ("windlass_duty_errors_total", "Sweeps that failed.", |it| it.errors.get()),
            ("windlass_duty_terms_total", "Times this process began to lead.", |it| it.terms.get()),
            ("windlass_duty_helped_total", "Sweeps for leaders behind.", |it| it.helped.get()),
        ];
        for (name, help, read) in counters {
            text.family(name, Kind::Counter, help);
            for duty in Duty::ALL {
                text.sample(name, &[("duty", duty.word())], read(self.duty(duty)));
            }
        }
        let name = "windlass_duty_leads";
        text.family(name, Kind::Gauge, "Whether this process leads.");
        for duty in Duty::ALL {
            let it = self.duty(duty);
            let leads = it.terms.get().saturating_sub(it.leads_no_more.get());
            text.sample(name, &[("duty", duty.word())], leads);
        }
        let name = "windlass_timer_lateness_seconds";
        text.family(name, Kind::Histogram, "How late the earliest of what was due was.");
        text.histogram(name, &[], &self.timer_lateness);
    }
}

/// The value of a label.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_histograms_end_with_all_of_them() {
        let mut text = Text::default();
        text.sample("m", &[("queue", "a\"b\\c\nd")], 1);
        let histogram = Histogram::new(&[0.5]);
        histogram.observe(0.25);
        histogram.observe(2.0);
        text.histogram("h", &[("verb", "claim")], &histogram);
        let expected = "m{queue=\"a\\\"b\\\\c\\nd\"} 1\n\
            h_bucket{verb=\"claim\",le=\"0.5\"} 1\n\
            h_bucket{verb=\"claim\",le=\"+Inf\"} 2\n\
            h_sum{verb=\"claim\"} 2.25\n\
            h_count{verb=\"claim\"} 2\n";
        assert_eq!(text.into_string(), expected);
    }

    #[test]
    fn every_sample_belongs_to_a_family_that_was_announced_once() {
        let mut text = Text::default();
        Metrics::default().write(&mut text);
        let text = text.into_string();
        let mut families = std::collections::BTreeMap::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(families.insert(name, kind), None, "{name} is announced twice");
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let parts = ["_bucket", "_sum", "_count"].iter();
                let family = parts.filter_map(|part| name.strip_suffix(part));
                let mut family = family.filter(|name| families.get(name) == Some(&"histogram"));
                assert!(families.contains_key(name) || family.next().is_some(), "{line}");
            }
        }
    }
}
