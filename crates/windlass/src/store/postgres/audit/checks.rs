//! The list of checks.

use super::report::Severity;

/// Which rows a check can be narrowed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those of some runs.
    Runs,
    /// None: it looks at all of a few rows, always.
    Little,
    /// None: it looks at all of everything, so it is left out when only some runs are asked
    /// for.
    Everything,
}

/// One check: a statement that gives one row for each thing it looks at, with a `problem`
/// that is null if all is well. Its first line is `-- id: title`.
pub(in super::super) struct Check {
    pub(super) text: &'static str,
    pub(super) severity: Severity,
    pub(super) reach: Reach,
}

impl Check {
    const fn new(text: &'static str) -> Self {
        Check { text, severity: Severity::Violation, reach: Reach::Runs }
    }

    const fn warning(text: &'static str) -> Self {
        Check { severity: Severity::Warning, ..Check::new(text) }
    }

    const fn of_little(text: &'static str) -> Self {
        Check { reach: Reach::Little, ..Check::new(text) }
    }

    const fn of_everything(text: &'static str) -> Self {
        Check { reach: Reach::Everything, ..Check::new(text) }
    }

    fn first_line(&self) -> (&'static str, &'static str) {
        let line = self.text.lines().next().unwrap_or_default();
        let line = line.strip_prefix("-- ").unwrap_or(line);
        line.split_once(": ").unwrap_or((line, ""))
    }

    /// Its name, such as `G8.open-tasks`.
    pub(in super::super) fn id(&self) -> &'static str {
        self.first_line().0
    }

    /// What must be true.
    pub(in super::super) fn title(&self) -> &'static str {
        self.first_line().1
    }

    /// Whether it looks at the schema only, and at no row.
    pub(super) fn is_of_schema(&self) -> bool {
        self.guarantee() == "schema" || self.id() == "G12.index"
    }

    /// Whether it compares the schema with that of this program, which a schema of a newer one
    /// may differ from.
    pub(super) fn needs_own_schema(&self) -> bool {
        self.guarantee() == "schema" && self.id() != "schema.migrations"
    }

    /// The guarantee it belongs to: its name up to the point.
    pub(super) fn guarantee(&self) -> &'static str {
        self.id().split_once('.').map_or("", |(guarantee, _)| guarantee)
    }
}

/// Every check, in the order in which they are run and shown.
pub(super) const CHECKS: &[Check] = &[
    Check::new(include_str!("sql/g1_place.sql")),
    Check::new(include_str!("sql/g1_no_other_place.sql")),
    Check::new(include_str!("sql/g1_unblocked.sql")),
    Check::new(include_str!("sql/g1_staged.sql")),
    Check::warning(include_str!("sql/g1_staged_late.sql")),
    Check::new(include_str!("sql/g2_edges.sql")),
    Check::new(include_str!("sql/g2_chain.sql")),
    Check::new(include_str!("sql/g2_one_end.sql")),
    Check::new(include_str!("sql/g2_state.sql")),
    Check::new(include_str!("sql/g2_tasks_kind.sql")),
    Check::new(include_str!("sql/g2_run_edges.sql")),
    Check::new(include_str!("sql/g2_run_chain.sql")),
    Check::new(include_str!("sql/g2_run_state.sql")),
    Check::new(include_str!("sql/g2_rounds.sql")),
    Check::new(include_str!("sql/g2_while_running.sql")),
    Check::warning(include_str!("sql/g2_times.sql")),
    Check::new(include_str!("sql/g3_one_completion.sql")),
    Check::new(include_str!("sql/g3_newest_fence.sql")),
    Check::new(include_str!("sql/g3_answered.sql")),
    Check::new(include_str!("sql/g3_outputs.sql")),
    Check::new(include_str!("sql/g4_fences.sql")),
    Check::new(include_str!("sql/g4_stored.sql")),
    Check::of_everything(include_str!("sql/g5_slots.sql")),
    Check::new(include_str!("sql/g5_places.sql")),
    Check::of_everything(include_str!("sql/g6_first.sql")),
    Check::new(include_str!("sql/g7_parents.sql")),
    Check::new(include_str!("sql/g8_open_tasks.sql")),
    Check::new(include_str!("sql/g8_failed_tasks.sql")),
    Check::new(include_str!("sql/g8_parents.sql")),
    Check::new(include_str!("sql/g8_verdict.sql")),
    Check::new(include_str!("sql/g8_open_run.sql")),
    Check::new(include_str!("sql/g8_dead_letters.sql")),
    Check::new(include_str!("sql/g9_attempts.sql")),
    Check::new(include_str!("sql/g9_bound.sql")),
    Check::new(include_str!("sql/g9_stored.sql")),
    Check::new(include_str!("sql/g9_policy.sql")),
    Check::new(include_str!("sql/g10_holder.sql")),
    Check::new(include_str!("sql/g10_claims.sql")),
    Check::new(include_str!("sql/g10_early.sql")),
    Check::warning(include_str!("sql/g10_leases_late.sql")),
    Check::new(include_str!("sql/g11_early.sql")),
    Check::new(include_str!("sql/g11_due.sql")),
    Check::new(include_str!("sql/g11_stored.sql")),
    Check::warning(include_str!("sql/g11_timers_late.sql")),
    Check::of_little(include_str!("sql/g12_index.sql")),
    Check::new(include_str!("sql/g12_keys.sql")),
    Check::new(include_str!("sql/g14_order.sql")),
    Check::new(include_str!("sql/g14_waits.sql")),
    Check::new(include_str!("sql/g14_keys.sql")),
    Check::of_little(include_str!("sql/g15_times.sql")),
    Check::of_little(include_str!("sql/g15_runs.sql")),
    Check::of_little(include_str!("sql/g16_leaders.sql")),
    Check::of_everything(include_str!("sql/queues_counts.sql")),
    Check::of_little(include_str!("sql/g16_duties.sql")),
    Check::new(include_str!("sql/g18_turns.sql")),
    Check::new(include_str!("sql/g18_marks.sql")),
    Check::new(include_str!("sql/g18_place.sql")),
    Check::of_little(include_str!("sql/rows_definitions.sql")),
    Check::new(include_str!("sql/rows_definition_of_run.sql")),
    Check::of_everything(include_str!("sql/rows_without_run.sql")),
    Check::new(include_str!("sql/rows_checkpoints.sql")),
    Check::of_little(include_str!("sql/schema_constraints.sql")),
    Check::of_little(include_str!("sql/schema_indexes.sql")),
    Check::of_little(include_str!("sql/schema_functions.sql")),
    Check::of_little(include_str!("sql/schema_migrations.sql")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_says_its_name_what_must_be_true_and_why() {
        let mut ids = BTreeSet::new();
        for check in CHECKS {
            let id = check.id();
            assert!(ids.insert(id), "{id} is there twice");
            assert!(!check.guarantee().is_empty() && !check.title().is_empty(), "{id}");
            let header = check.text.lines().take_while(|line| line.starts_with("--")).count();
            assert!(header >= 3, "the header of {id} does not say why");
        }
    }
}
