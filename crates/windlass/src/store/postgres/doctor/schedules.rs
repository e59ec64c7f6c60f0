//! Schedules that skip times: a check that computes their cadences, so it is more than a statement.

use std::time::Instant;

use tokio_postgres::{Client, Row};
use windlass_core::Timestamp;

use super::super::audit::{body, header};
use super::super::schedules::record_of;
use super::super::time::At;
use super::checks::Needs;
use super::report::{Examined, Finding, FindingSeverity};
use super::{DoctorOptions, FINDINGS_MAX, Scene, ask, elapsed, made, unchecked};
use crate::store::{ScheduleKey, ScheduleRecord};

const SQL: &str = include_str!("sql/engine_schedules.sql");
const ID: &str = "engine.schedules";
const TITLE: &str = "active schedules are readable and skip no times";

/// Looks at all active schedules.
pub(super) async fn look(
    client: &mut Client,
    options: &DoctorOptions,
    scene: &Scene,
) -> Result<Examined, tokio_postgres::Error> {
    let began = Instant::now();
    let mut examined = made(ID, TITLE, began, None);
    examined.sql = Some(format!("{}{}\n", header(SQL), body(SQL)));
    if let Some(reason) = scene.skips(Needs::Schema) {
        examined.skipped = Some(reason.to_owned());
        return Ok(examined);
    }
    match ask(client, body(SQL), options).await {
        Ok(rows) => {
            examined.findings = rows.iter().filter_map(|row| judge(row, options)).collect();
            examined.found = examined.findings.len() as u64;
            examined.findings.truncate(FINDINGS_MAX);
        }
        Err(error) => {
            examined.found = 1;
            examined.findings = vec![unchecked(error)?];
        }
    }
    examined.took_ms = elapsed(began);
    Ok(examined)
}

/// What is wrong with the schedule of a row, if anything is.
fn judge(row: &Row, options: &DoctorOptions) -> Option<Finding> {
    let now = row.get::<_, At>("now").0;
    match record_of(row) {
        Ok(record) => passed_over(&record, now, now + options.late_after),
        Err(error) => Some(Finding {
            severity: FindingSeverity::Warning,
            problem: format!("schedule {} cannot be read: {error}", row.get::<_, &str>("name")),
            cause: "a newer version of the engine wrote it; this version does not fire it"
                .to_owned(),
            remedy: "upgrade every process, or delete the schedule and create it again".to_owned(),
        }),
    }
}

/// Whether a time that is yet to come, behind one that is near, is decided already: then the clock
/// was ahead when that was done. What a clock that goes a little back makes of it is nothing.
fn passed_over(record: &ScheduleRecord, now: Timestamp, near: Timestamp) -> Option<Finding> {
    let first = record.schedule.timing.next_after(near)?;
    if record.next_at.is_some_and(|next| next <= first) {
        return None;
    }
    let ScheduleKey { tenant, name } = &record.schedule.key;
    let next = record.next_at.map_or("never".to_owned(), |next| format!("next at {next}"));
    Some(Finding {
        severity: FindingSeverity::Critical,
        problem: format!(
            "schedule {name} of tenant {tenant} fires {next}, although {first} is one of its \
             times and it is {now}"
        ),
        cause: "the clock of the server was ahead once, and a decided time is not decided again"
            .to_owned(),
        remedy: format!(
            "windlass schedules delete {name} --tenant {tenant}, then create it again, or start a \
             worker of the program that declares it"
        ),
    })
}
