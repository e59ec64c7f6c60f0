//! What a benchmark says: figures by their names, for people and for programs.

use std::io::Write as _;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value};
use windlass::store::postgres::AuditReport;

use crate::text::{count, thousands};

/// One figure.
#[derive(Clone, Debug)]
struct Figure {
    key: String,
    label: String,
    value: f64,
    unit: &'static str,
    /// The most that it may be.
    max: Option<f64>,
}

/// The figures of one benchmark, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    name: &'static str,
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new(name: &'static str) -> Self {
        Report { name, figures: Vec::new() }
    }

    /// Adds a figure. The key is for programs, the label and the unit are for people.
    pub(crate) fn add(
        &mut self,
        key: impl Into<String>,
        label: impl Into<String>,
        value: f64,
        unit: &'static str,
    ) {
        let (key, label) = (key.into(), label.into());
        self.figures.push(Figure { key, label, value, unit, max: None });
    }

    /// Adds a figure with a bound, which is shown in brackets beside it.
    pub(crate) fn add_at_most(
        &mut self,
        key: impl Into<String>,
        label: impl Into<String>,
        value: f64,
        unit: &'static str,
        max: f64,
    ) {
        let (key, label) = (key.into(), label.into());
        self.figures.push(Figure { key, label, value, unit, max: Some(max) });
    }

    /// Returns whether a figure exceeds its bound.
    pub(crate) fn is_missed(&self) -> bool {
        self.figures.iter().any(Figure::is_missed)
    }

    /// Adds the median and the 99th percentile of times, in milliseconds.
    pub(crate) fn add_times(&mut self, key: &str, label: &str, times: &mut [Duration]) {
        times.sort_unstable();
        for percent in [50, 99] {
            let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
            let millis = times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3);
            let label = format!("{label}, p{percent}");
            self.add(format!("{key}_p{percent}_ms"), label, millis, "ms");
        }
    }

    /// Prints it, with what the audit found.
    pub(crate) fn print(&self, audit: &AuditReport, is_json: bool) -> anyhow::Result<()> {
        let text = if is_json { self.json(audit)? } else { self.table(audit) };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(())
    }

    fn json(&self, audit: &AuditReport) -> anyhow::Result<String> {
        let mut object = Map::new();
        object.insert("benchmark".to_owned(), self.name.into());
        for figure in &self.figures {
            object.insert(figure.key.clone(), figure.value.into());
            if let Some(max) = figure.max {
                object.insert(format!("{}_max", figure.key), max.into());
            }
        }
        object.insert("audit_clean".to_owned(), audit.is_clean().into());
        Ok(serde_json::to_string_pretty(&Value::Object(object))? + "\n")
    }

    fn table(&self, audit: &AuditReport) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let is_bounded = self.figures.iter().any(|figure| figure.max.is_some());
        for figure in &self.figures {
            let mut row = vec![figure.label.clone(), shown(figure.value), figure.unit.to_owned()];
            if is_bounded {
                row.push(figure.bound());
            }
            table.add_row(row);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let checks = count(audit.checks.len(), "check");
        let rows = thousands(audit.checks.iter().map(|check| check.checked).sum());
        let verdict = if audit.is_clean() { "clean" } else { "VIOLATED" };
        format!("{table}\naudit: {verdict}, {checks} of {rows} rows\n")
    }
}

impl Figure {
    /// Returns whether it exceeds its bound. A figure that is no number does.
    fn is_missed(&self) -> bool {
        self.max.is_some_and(|max| self.value.is_nan() || self.value > max)
    }

    /// Its bound in brackets, and whether it was missed.
    fn bound(&self) -> String {
        let missed = if self.is_missed() { " MISSED" } else { "" };
        self.max.map_or(String::new(), |max| format!("[at most {max}]{missed}"))
    }
}

/// A figure with as many digits as it deserves.
fn shown(value: f64) -> String {
    if value.abs() >= 1000.0 {
        thousands(value.round().abs() as u64)
    } else if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit() -> AuditReport {
        serde_json::from_str(r#"{"at": 0, "since": null, "checks": []}"#).unwrap()
    }

    #[test]
    fn figures_are_shown_with_as_many_digits_as_they_deserve() {
        let values = [0.0123, 1.5, 12.34, 123.4, 12345.6];
        assert_eq!(values.map(shown), ["0.012", "1.500", "12.3", "123", "12,346"]);
    }

    #[test]
    fn times_are_told_by_their_middle_and_their_end() {
        let mut report = Report::new("latency");
        let mut times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        report.add_times("start", "start to first task", &mut times);
        let told = report.figures.iter().map(|it| (it.key.as_str(), it.label.as_str(), it.value));
        let expected = [
            ("start_p50_ms", "start to first task, p50", 101.0),
            ("start_p99_ms", "start to first task, p99", 199.0),
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        report.add_times("hop", "task to next task", &mut []);
        assert_eq!(report.figures[2].value, 0.0);
    }

    #[test]
    fn a_missed_bound_is_shown_beside_its_figure() {
        let mut report = Report::new("hostile");
        report.add_at_most("kept", "kept", 1.5, "", 1.5);
        assert!(!report.is_missed());
        report.add_at_most("missed", "missed", 1.6, "", 1.5);
        assert!(report.is_missed());
        let table = report.table(&audit());
        assert!(table.contains("1.600     [at most 1.5] MISSED"), "{table}");
        let json: Value = serde_json::from_str(&report.json(&audit()).unwrap()).unwrap();
        assert_eq!(json["missed_max"], 1.5);
    }

    #[test]
    fn programs_find_figures_by_their_keys_and_people_by_their_labels() {
        let mut report = Report::new("start");
        report.add("starts_per_second", "starts in bulk", 52_143.2, "per second");
        let json: Value = serde_json::from_str(&report.json(&audit()).unwrap()).unwrap();
        assert_eq!(json["benchmark"], "start");
        assert_eq!(json["starts_per_second"], 52_143.2);
        assert_eq!(json["audit_clean"], true);
        let table = report.table(&audit());
        assert!(table.contains("starts in bulk") && table.contains("52,143"), "{table}");
        assert!(table.ends_with("audit: clean, 0 checks of 0 rows\n"), "{table}");
    }
}
