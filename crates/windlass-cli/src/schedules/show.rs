//! Schedules as people and programs read them.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::Timestamp;
use windlass::store::{Fire, FireResult, ScheduleRecord, ScheduleState, UnreadableSchedule};

use crate::text::{age, listing, shown};

fn time(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), |at| at.to_string())
}

/// A duration in its largest units; a dash for none.
fn duration(time: Duration) -> String {
    match time {
        Duration::ZERO => "-".to_owned(),
        time if time < Duration::from_secs(1) => format!("{}ms", time.as_millis()),
        time => age(time),
    }
}

fn next(record: &ScheduleRecord) -> String {
    match record.state {
        ScheduleState::Active => time(record.next_at),
        ScheduleState::Paused | ScheduleState::Disabled => "-".to_owned(),
    }
}

/// One line for each.
pub(super) fn table(records: &[ScheduleRecord], unreadable: &[UnreadableSchedule]) -> String {
    if records.is_empty() && unreadable.is_empty() {
        return "there are no schedules\n".to_owned();
    }
    let header = ["tenant", "name", "workflow", "state", "times", "last", "next"];
    let row = |record: &ScheduleRecord| {
        let schedule = &record.schedule;
        vec![
            shown(schedule.key.tenant.as_str()),
            shown(schedule.key.name.as_str()),
            shown(schedule.workflow.as_str()),
            record.state.to_string(),
            shown(&schedule.timing.cadence.to_string()),
            time(record.last_at),
            next(record),
        ]
    };
    let mut text = listing(&header, &[], records.iter().map(row));
    for one in unreadable {
        let (tenant, name) = (shown(&one.tenant), shown(&one.name));
        text.push_str(&format!("unreadable: {name} of {tenant}: {}\n", shown(&one.problem)));
    }
    text
}

/// All that is known of one.
pub(super) fn page(record: &ScheduleRecord, fires: &[Fire]) -> String {
    let schedule = &record.schedule;
    let timing = &schedule.timing;
    let lines = [
        ("name", shown(schedule.key.name.as_str())),
        ("tenant", shown(schedule.key.tenant.as_str())),
        ("workflow", format!("{} version {}", shown(schedule.workflow.as_str()), schedule.version)),
        ("input", shown(schedule.input.as_str())),
        ("state", record.state.to_string()),
        ("owner", schedule.owner.as_ref().map_or("-".to_owned(), |it| shown(it.as_str()))),
        ("times", shown(&timing.cadence.to_string())),
        ("start", time(timing.starts_at)),
        ("end", time(timing.ends_at)),
        ("jitter", duration(timing.jitter)),
        ("grace", duration(timing.grace)),
        ("missed", timing.missed.to_string()),
        ("overlap", timing.overlap.to_string()),
        ("last", time(record.last_at)),
        ("next", next(record)),
        ("waits", time(record.queued_at)),
    ];
    let mut text = String::new();
    for (name, value) in lines {
        text.push_str(&format!("{name:9} {value}\n"));
    }
    if !fires.is_empty() {
        let header = ["nominal time", "by", "what became of it", "run", "decided"];
        let row = |fire: &Fire| {
            vec![
                fire.nominal.to_string(),
                fire.by.word().to_owned(),
                result(fire),
                fire.result.run().map_or("-".to_owned(), |run| run.to_string()),
                fire.at.to_string(),
            ]
        };
        text.push('\n');
        text.push_str(&listing(&header, &[], fires.iter().map(row)));
    }
    text
}

fn result(fire: &Fire) -> String {
    match &fire.result {
        FireResult::Missed { first, count } if *count > 1 => {
            format!("missed, with all since {first}: {count}")
        }
        FireResult::Refused(reason) => format!("refused: {}", shown(reason)),
        FireResult::Started(_)
        | FireResult::Missed { .. }
        | FireResult::Overlapped
        | FireResult::Queued => fire.result.word().to_owned(),
    }
}

/// A schedule as JSON.
pub(super) fn json(record: &ScheduleRecord) -> Value {
    let schedule = &record.schedule;
    let timing = &schedule.timing;
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    json!({
        "tenant": schedule.key.tenant,
        "name": schedule.key.name,
        "workflow": schedule.workflow,
        "version": schedule.version,
        "input": serde_json::from_str::<Value>(schedule.input.as_str()).unwrap_or_default(),
        "priority": schedule.priority,
        "owner": schedule.owner,
        "state": record.state.word(),
        "cadence": timing.cadence,
        "starts_at": time(timing.starts_at),
        "ends_at": time(timing.ends_at),
        "jitter_seconds": timing.jitter.as_secs_f64(),
        "grace_seconds": timing.grace.as_secs_f64(),
        "missed": timing.missed.to_string(),
        "overlap": timing.overlap.word(),
        "last_at": time(record.last_at),
        "next_at": time(record.next_at),
        "queued_at": time(record.queued_at),
    })
}

/// A schedule that cannot be read as JSON.
pub(super) fn unreadable_json(one: &UnreadableSchedule) -> Value {
    json!({
        "tenant": one.tenant,
        "name": one.name,
        "state": "unreadable",
        "problem": one.problem,
    })
}

/// A line of the history of a schedule as JSON.
pub(super) fn fire_json(fire: &Fire) -> Value {
    let (first, count) = match &fire.result {
        FireResult::Missed { first, count } => (Some(first.to_string()), Some(*count)),
        FireResult::Started(_)
        | FireResult::Overlapped
        | FireResult::Queued
        | FireResult::Refused(_) => (None, None),
    };
    let reason = match &fire.result {
        FireResult::Refused(reason) => Some(reason.clone()),
        FireResult::Started(_)
        | FireResult::Missed { .. }
        | FireResult::Overlapped
        | FireResult::Queued => None,
    };
    json!({
        "nominal": fire.nominal.to_string(),
        "by": fire.by.word(),
        "result": fire.result.word(),
        "run": fire.result.run(),
        "first": first,
        "count": count,
        "reason": reason,
        "at": fire.at.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_without_units_of_programs() {
        assert_eq!(duration(Duration::ZERO), "-");
        assert_eq!(duration(Duration::from_millis(250)), "250ms");
        assert_eq!(duration(Duration::from_secs(60)), "1m");
    }
}
