//! Vacuum, bloat and the schema.

use std::time::Instant;

use super::*;

/// Rows that die in one statement, and some behind them that do not.
const NOTES: &str = "insert into windlass.notes (run_id, idx, fence, note)
    select gen_random_uuid(), n, 1, '1' from generate_series(1, 40000) n";

impl Patient {
    /// Waits until the counters of the server have come to where a check finds so much.
    async fn until_found(&self, id: &str, count: usize) -> Vec<Finding> {
        let began = Instant::now();
        loop {
            let findings = self.findings(id).await;
            if findings.len() == count {
                return findings;
            }
            assert!(began.elapsed() < WAIT_MAX, "{id} does not find {count}: {findings:#?}");
        }
    }
}

#[tokio::test]
async fn dead_rows_that_nobody_removes_are_found() {
    let patient = Patient::new().await;
    patient.assert_well("tables.vacuum", "before").await;
    patient.execute(NOTES).await;
    patient.execute("analyze windlass.notes").await;
    patient.assert_well("tables.vacuum", "with live rows").await;
    // A session tells its counters when it ends, or after a while.
    let other = patient.database.client().await;
    let delete = "delete from windlass.notes where idx <= 39000";
    other.batch_execute(delete).await.expect("they are deleted");
    drop(other);
    let found = patient.until_found("tables.vacuum", 1).await;
    let words = ["windlass.notes has 39000 dead and", "last autovacuum: never", "vacuum (verbose)"];
    let finding = assert_one(found, FindingSeverity::Warning, &words);
    let (vacuum, _) = finding.remedy.split_once(',').expect("it says more");
    patient.execute(vacuum).await;
    patient.until_found("tables.vacuum", 0).await;

    patient.execute("alter table windlass.ready set (autovacuum_enabled = off)").await;
    let words = ["autovacuum is disabled for windlass.ready"];
    let finding = patient.assert_found("tables.vacuum", FindingSeverity::Warning, &words).await;
    patient.execute(&finding.remedy).await;
    patient.assert_well("tables.vacuum", "after").await;
}

#[tokio::test]
async fn tables_and_indexes_that_are_too_large_for_their_rows_are_found() {
    let patient = Patient::with(DoctorOptions::new().bloat_min_bytes(1 << 20)).await;
    patient.assert_well("tables.bloat", "before").await;
    patient.execute(NOTES).await;
    patient.execute("vacuum analyze windlass.notes").await;
    patient.assert_well("tables.bloat", "full of live rows").await;
    patient.execute("delete from windlass.notes where idx <= 39000").await;
    patient.execute("vacuum analyze windlass.notes").await;
    let found = patient.findings("tables.bloat").await;
    let [index, table] = &found[..] else { panic!("{found:#?}") };
    assert!(index.problem.contains("index windlass.notes_pkey takes"), "{index:#?}");
    assert_eq!(index.remedy, "reindex index concurrently windlass.notes_pkey");
    assert!(table.problem.contains("table windlass.notes takes"), "{table:#?}");
    assert!(table.problem.contains("for about 1000 rows"), "{table:#?}");
    patient.execute(&index.remedy).await;
    let (vacuum, _) = table.remedy.split_once(" in a maintenance window").expect("it says more");
    patient.execute(vacuum).await;
    patient.assert_well("tables.bloat", "after").await;
    let patient = Patient { options: DoctorOptions::new(), ..patient };
    patient.execute("delete from windlass.notes").await;
    patient.assert_well("tables.bloat", "that is small").await;
}

#[tokio::test]
async fn what_is_missing_in_the_schema_is_found_with_what_makes_it_again() {
    let patient = Patient::new().await;
    for id in ["schema.indexes", "schema.constraints", "schema.functions", "G12.index"] {
        patient.assert_well(id, "before").await;
    }
    for (name, id) in [
        ("runs_by_age", "schema.indexes"),
        ("ready_order", "schema.indexes"),
        ("runs_key", "G12.index"),
    ] {
        patient.execute(&format!("drop index windlass.{name}")).await;
        let made = format!("index concurrently {name} on");
        let words = [name, "does not exist", &made];
        let finding = patient.assert_found(id, FindingSeverity::Critical, &words).await;
        patient.execute(&finding.remedy).await;
        patient.assert_well(id, "after").await;
        patient.assert_well("schema.indexes", "after").await;
    }

    patient.execute("alter table windlass.runs drop constraint runs_round_check").await;
    let words = ["constraint runs_round_check on windlass.runs does not exist"];
    patient.assert_found("schema.constraints", FindingSeverity::Critical, &words).await;
    let add = "alter table windlass.runs add constraint runs_round_check check (round >= 1)";
    patient.execute(&format!("{add} not valid")).await;
    let words = ["runs_round_check on windlass.runs is not valid"];
    let id = "schema.constraints";
    let finding = patient.assert_found(id, FindingSeverity::Critical, &words).await;
    patient.execute(&finding.remedy).await;
    patient.assert_well(id, "after").await;
}
