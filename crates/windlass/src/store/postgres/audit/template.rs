//! Statements with what they need of the tables and the options filled in.

use std::time::Duration;

use windlass_core::Timestamp;
use windlass_core::retry::WAIT_MAX;

use super::super::check::SchemaVersion;
use super::checks::{Check, Reach};
use super::functions::Expected;
use super::{AuditOptions, legal, schema};

/// What stands for the placeholders in the files: `{name}`, or `{scope column}` for the
/// condition that the run with this id is to be checked.
///
/// Nothing of it comes from users: statements are printed as they are run, so they have no
/// parameters.
pub(super) struct Template {
    is_newer_schema: bool,
    parts: Vec<(&'static str, String)>,
    since: Option<String>,
}

impl Template {
    pub(super) fn new(
        options: &AuditOptions,
        since: Option<Timestamp>,
        expected: Expected,
        version: SchemaVersion,
    ) -> Self {
        let now = options.now.map_or_else(|| "now()".to_owned(), timestamp);
        let parts = vec![
            ("now", now),
            ("late_after", interval(options.late_after)),
            ("final", legal::final_states()),
            ("task_edges", legal::task_edges()),
            ("run_edges", legal::run_edges()),
            ("constraints", schema::rows(schema::CONSTRAINTS)),
            ("indexes", schema::rows(schema::INDEXES)),
            ("functions", expected.functions),
            ("migrations", expected.migrations),
            ("parents", include_str!("sql/parts/parents.sql").to_owned()),
            ("specs", include_str!("sql/parts/specs.sql").to_owned()),
        ];
        let is_newer_schema = version.is_newer();
        Template { is_newer_schema, parts, since: since.map(timestamp) }
    }

    /// Whether a check cannot be made: only some of the runs are looked at, or the schema is one
    /// that a newer program has made.
    pub(super) fn skips(&self, check: &Check) -> bool {
        (check.reach == Reach::Everything && self.since.is_some())
            || (check.needs_own_schema() && self.is_newer_schema)
    }

    /// The statement of a file. A placeholder that is alone on its line is filled in with
    /// the indentation of the line.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        for line in text.lines() {
            let indent = &line[..line.len() - line.trim_start().len()];
            let line = self.fill_line(line);
            for (number, part) in line.trim_end().split('\n').enumerate() {
                if number > 0 && !part.is_empty() {
                    filled.push_str(indent);
                }
                filled.push_str(part);
                filled.push('\n');
            }
        }
        filled
    }

    fn fill_line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (name, part) in &self.parts {
            line = line.replace(&format!("{{{name}}}"), part);
        }
        while let Some(start) = line.find("{scope ") {
            let Some(length) = line[start..].find('}') else { break };
            let column = line[start + "{scope ".len()..start + length].to_owned();
            line.replace_range(start..=start + length, &self.scope(&column));
        }
        line
    }

    fn scope(&self, column: &str) -> String {
        match &self.since {
            None => "true".to_owned(),
            Some(since) => format!(
                "{column} in (select s.id from windlass.runs s where s.created_at >= {since})"
            ),
        }
    }
}

/// The comments that a statement begins with.
pub(in super::super) fn header(query: &str) -> &str {
    query.split_at(header_length(query)).0
}

/// A statement without the comments that it begins with.
pub(in super::super) fn body(query: &str) -> &str {
    query.split_at(header_length(query)).1.trim_end()
}

fn header_length(query: &str) -> usize {
    query.split_inclusive('\n').take_while(|line| line.starts_with("--")).map(str::len).sum()
}

fn timestamp(time: Timestamp) -> String {
    format!("'epoch'::timestamptz + {} * interval '1 microsecond'", time.as_micros())
}

/// An interval; one that is longer than anything waits would leave PostgreSQL's calendar.
pub(in super::super) fn interval(time: Duration) -> String {
    format!("{} * interval '1 microsecond'", time.min(WAIT_MAX).as_micros())
}

#[cfg(test)]
mod tests {
    use super::super::checks::{CHECKS, Reach};
    use super::*;

    fn narrowed(since: Option<Timestamp>) -> Template {
        Template::new(&AuditOptions::new(), since, Expected::default(), SchemaVersion::default())
    }

    #[test]
    fn nothing_is_left_to_fill_in() {
        for since in [None, Some(Timestamp::from_micros(7))] {
            for check in CHECKS {
                let query = narrowed(since).fill(check.text);
                let braces = body(&query).contains(['{', '}']);
                assert!(!braces, "{}:\n{query}", check.id());
            }
        }
    }

    #[test]
    fn what_cannot_be_narrowed_is_known() {
        for check in CHECKS {
            let is_narrowed = check.text.contains("{scope ");
            let is_scoped = check.reach == Reach::Runs;
            assert_eq!(is_narrowed, is_scoped, "{}", check.id());
        }
    }

    #[test]
    fn a_part_is_indented_like_its_placeholder() {
        let filled = narrowed(None).fill("from (\n    {parents}\n) p\n");
        assert!(!filled.contains("\nfrom windlass.definitions d"), "{filled}");
        assert!(filled.contains("\n    from windlass.definitions d\n"), "{filled}");
    }

    #[test]
    fn runs_are_narrowed_by_their_age() {
        let filled = narrowed(Some(Timestamp::from_micros(7))).fill("where {scope e.run_id}");
        assert_eq!(
            filled,
            "where e.run_id in (select s.id from windlass.runs s \
             where s.created_at >= 'epoch'::timestamptz + 7 * interval '1 microsecond')\n"
        );
        assert_eq!(narrowed(None).fill("where {scope e.run_id}"), "where true\n");
    }
}
