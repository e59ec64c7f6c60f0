//! The auditor finds what is wrong, says what, and says nothing of what is right.

mod busy;
mod story;
mod violations;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use windlass::ErrorKind;
use windlass::store::postgres::{
    AuditOptions, AuditReport, CheckResult, EXAMPLE_CHARS_MAX, EXAMPLES_MAX, PostgresOptions, audit,
};

use crate::database::TestDatabase;
use story::Story;
use violations::{VIOLATIONS, Violation};

fn found(report: &AuditReport) -> Vec<&CheckResult> {
    report.checks.iter().filter(|check| check.violations > 0).collect()
}

fn ids<'a>(checks: &[&'a CheckResult]) -> BTreeSet<&'a str> {
    checks.iter().map(|check| check.id.as_str()).collect()
}

fn check<'a>(report: &'a AuditReport, id: &str) -> &'a CheckResult {
    report.checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check {id}"))
}

#[tokio::test]
async fn a_database_with_runs_in_all_states_is_clean() {
    let report = Story::told().await.audit().await;
    let found = found(&report);
    assert!(found.is_empty(), "{found:#?}");
    assert!(report.is_clean() && !report.has_warnings());
    for check in &report.checks {
        assert!(check.checked > 0 && !check.is_skipped, "{} looked at nothing", check.id);
    }
}

#[tokio::test]
async fn a_database_without_runs_is_clean() {
    let report = Story::empty().await.audit().await;
    assert!(found(&report).is_empty(), "{report:#?}");
    assert_eq!(check(&report, "schema.indexes").checked, 36);
}

#[tokio::test]
async fn every_check_has_a_violation_that_it_finds() {
    let report = Story::empty().await.audit().await;
    let all: BTreeSet<_> = report.checks.iter().map(|check| check.id.as_str()).collect();
    let violated: BTreeSet<_> = VIOLATIONS.iter().map(|violation| violation.found_by[0]).collect();
    assert_eq!(violated, all);
}

/// Audits the story with what is wrong in it.
async fn assert_found(story: &Story, violation: &Violation) {
    story.execute(violation.sql).await;
    let report = story.audit().await;
    let checks = found(&report);
    let expected: BTreeSet<_> = violation.found_by.iter().copied().collect();
    assert_eq!(ids(&checks), expected, "{}\n{checks:#?}", violation.sql);
    let first = check(&report, violation.found_by[0]);
    let names = story.run_named(violation.names).await;
    let is_named = |example: &String| names.iter().any(|name| example.contains(name));
    assert!(first.examples.iter().any(is_named), "{names:?} in {first:#?}");
}

/// Each breach of a guarantee is found by the checks that should find it and no others.
async fn assert_all_found(guarantees: &[&str]) {
    let story = Story::editable().await;
    story.keep().await;
    let of = |violation: &&Violation| {
        let guarantee = violation.found_by[0].split('.').next().unwrap_or_default();
        guarantees.contains(&guarantee)
    };
    let mut count = 0;
    for violation in VIOLATIONS.iter().filter(of) {
        count += 1;
        assert_found(&story, violation).await;
        story.begin_again().await;
        story.execute(violation.undo).await;
    }
    assert_ne!(count, 0, "{guarantees:?} have no violations");
    let report = story.audit().await;
    assert!(found(&report).is_empty(), "the story does not begin again as it was: {report:#?}");
}

#[tokio::test]
async fn lost_and_doubled_tasks_are_found() {
    assert_all_found(&["G1"]).await;
}

#[tokio::test]
async fn states_that_do_not_move_forward_are_found() {
    assert_all_found(&["G2"]).await;
}

#[tokio::test]
async fn completions_and_fences_that_are_not_right_are_found() {
    assert_all_found(&["G3", "G4"]).await;
}

#[tokio::test]
async fn wrong_lanes_are_found() {
    assert_all_found(&["G5", "G6"]).await;
}

#[tokio::test]
async fn children_before_their_parents_and_wrong_counters_are_found() {
    assert_all_found(&["G7", "G8"]).await;
}

#[tokio::test]
async fn wrong_attempts_and_leases_are_found() {
    assert_all_found(&["G9", "G10"]).await;
}

#[tokio::test]
async fn wrong_timers_and_keys_are_found() {
    assert_all_found(&["G11", "G12"]).await;
}

#[tokio::test]
async fn wrong_turns_rows_and_schemas_are_found() {
    assert_all_found(&["G18", "queues", "rows", "schema"]).await;
}

#[tokio::test]
async fn late_things_are_warnings_and_how_late_is_an_option() {
    let story = Story::told().await;
    story.execute("update windlass.runs set created_at = created_at - interval '1 hour'").await;
    let report = story.audit().await;
    assert!(report.is_clean() && report.has_warnings(), "{:#?}", found(&report));
    let patient = story.options().late_after(Duration::from_secs(7_200));
    let report = audit(&story.database(), &patient).await.unwrap();
    assert!(!report.has_warnings(), "{:#?}", found(&report));
}

#[tokio::test]
async fn only_the_newest_runs_are_checked_if_they_are_asked_for() {
    let story = Story::told().await;
    story.execute("update windlass.runs set round = 7 where workflow = 'paid'").await;
    assert!(!story.audit().await.is_clean());
    let narrow = story.options().newest_runs(3);
    let report = audit(&story.database(), &narrow).await.unwrap();
    assert!(found(&report).is_empty(), "{:#?}", found(&report));
    let runs = check(&report, "G2.rounds").checked;
    let events = check(&report, "G2.chain").checked;
    // One that is ready, one that is staged, and one whose four tasks were cancelled.
    assert_eq!((runs, events), (3, 5));
    let skipped =
        report.checks.iter().filter(|check| check.is_skipped).map(|check| check.id.as_str());
    assert_eq!(
        skipped.collect::<Vec<_>>(),
        ["G5.slots", "G6.first", "queues.counts", "rows.without-run"]
    );

    story.execute("update windlass.runs set created_at = created_at - interval '1 day'").await;
    let minute = story.options().started_within(Duration::from_secs(60));
    let report = audit(&story.database(), &minute).await.unwrap();
    assert_eq!(check(&report, "G2.rounds").checked, 0);
    let ever = story.options().started_within(Duration::MAX);
    assert!(!audit(&story.database(), &ever).await.unwrap().is_clean());
}

#[tokio::test]
async fn many_violations_are_counted_and_a_few_are_shown() {
    let story = Story::editable().await;
    story
        .execute("update windlass.events set kind = repeat('x', 2000) where idx is not null")
        .await;
    let report = story.audit().await;
    let edges = check(&report, "G2.edges");
    assert_eq!(edges.violations, edges.checked);
    assert!(edges.violations > EXAMPLES_MAX as u64);
    assert_eq!(edges.examples.len(), EXAMPLES_MAX);
    assert!(edges.examples.iter().all(|text| text.chars().count() == EXAMPLE_CHARS_MAX));
    assert!(edges.examples.is_sorted());
}

#[tokio::test]
async fn the_printed_statement_shows_the_examples() {
    let story = Story::told().await;
    story.execute("update windlass.runs set open_tasks = 2 where workflow = 'fresh'").await;
    let report = story.audit().await;
    let check = check(&report, "G8.open-tasks");
    assert!(check.sql.starts_with("-- G8.open-tasks: open_tasks of a run counts"), "{}", check.sql);
    assert_eq!(story.texts(&check.sql).await, check.examples);
    for check in &report.checks {
        story.texts(&check.sql).await;
    }
}

#[tokio::test]
async fn what_is_looked_for_in_the_schema_is_all_that_there_is() {
    let story = Story::empty().await;
    let report = story.audit().await;
    let constraints = "select format('%s %s', c.conrelid::regclass, c.conname) from pg_constraint c
        where c.connamespace = 'windlass'::regnamespace and c.contype in ('c', 'f', 'p', 'u', 'x')";
    let indexes = "select format('%s %s', i.indrelid::regclass, i.indexrelid::regclass)
        from pg_index i join pg_class c on c.oid = i.indexrelid
        where c.relnamespace = 'windlass'::regnamespace
            and not exists (select from pg_constraint k where k.conindid = i.indexrelid)";
    for (id, sql) in [("schema.constraints", constraints), ("schema.indexes", indexes)] {
        let there = story.texts(sql).await;
        let known = &check(&report, id).sql;
        for name in &there {
            let (relation, name) = name.split_once(' ').unwrap();
            let [relation, name] =
                [relation, name].map(|text| text.trim_start_matches("windlass."));
            let row = format!("('{relation}', '{name}')");
            assert!(known.contains(&row), "{id} does not look for {row}");
        }
        assert_eq!(check(&report, id).checked, there.len() as u64);
    }
    let functions = "select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace = 'windlass'::regnamespace";
    let there = story.texts(functions).await;
    let known = check(&report, "schema.functions");
    for signature in &there {
        assert!(known.sql.contains(&format!("('{signature}', ")), "{signature} is not looked for");
    }
    assert_eq!(known.checked, there.len() as u64);
}

#[tokio::test]
async fn the_page_of_the_auditor_lists_every_check() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/audit.md");
    let page = std::fs::read_to_string(page).unwrap();
    for check in Story::empty().await.audit().await.checks {
        let row = format!("| `{}` | {} |", check.id, check.title);
        assert!(page.contains(&row), "docs/audit.md lacks\n{row}");
    }
}

#[tokio::test]
async fn what_keeps_the_audit_from_being_made_is_named() {
    let audit = async |url: &str| {
        let database = PostgresOptions::new(url);
        audit(&database, &AuditOptions::new()).await.unwrap_err()
    };
    let error = audit("postgres://localhost:port/x").await;
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let error = audit("postgres://windlass@127.0.0.1:1/x").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let bare = TestDatabase::bare().await;
    let error = audit(&bare.url()).await;
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    assert!(error.to_string().contains("has no schema of Windlass"), "{error}");
}

#[tokio::test]
async fn a_schema_of_another_version_is_not_audited() {
    let story = Story::empty().await;
    let newer = "update windlass.migrations set version = version + 1000, works_from = 1000";
    story.execute(newer).await;
    let error = audit(&story.database(), &story.options()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    assert!(error.to_string().contains("use a newer program"), "{error}");
}

#[tokio::test]
async fn a_role_that_may_only_read_can_audit_and_one_that_may_not_is_told_what() {
    let story = Story::told().await;
    let role = format!("reader_{}", std::process::id());
    let url = story.url();
    let (_, place) = url.split_once('@').expect("the address has a role");
    let reader = PostgresOptions::new(format!("postgres://{role}@{place}"));
    let create = format!("create role {role} login; grant usage on schema windlass to {role}");
    story.execute(&create).await;
    let refused = audit(&reader, &story.options()).await;
    story.execute(&format!("grant select on all tables in schema windlass to {role}")).await;
    let report = audit(&reader, &story.options()).await;
    story.execute(&format!("drop owned by {role}; drop role {role}")).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Database, "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("role {role:?} lacks a right in database")), "{text}");
    assert!(text.contains(": select on windlass."), "{text}");
    assert!(report.unwrap().is_clean());
}

#[tokio::test]
async fn a_check_that_takes_too_long_is_named() {
    let story = Story::empty().await;
    story.execute("begin; lock table windlass.tenants").await;
    // Long enough for every other check, on a busy machine as well.
    let hasty = story.options().statement_timeout(Duration::from_millis(800));
    let error = audit(&story.database(), &hasty).await.unwrap_err();
    story.execute("rollback").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(", G18.place failed: "), "{error}");
    assert!(error.to_string().contains("check fewer runs"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_read_is_named() {
    let story = Story::editable().await;
    story.execute(r#"update windlass.events set detail = '{"until":"soon"}'"#).await;
    let error = audit(&story.database(), &story.options()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(", G11.early failed: "), "{error}");
}
