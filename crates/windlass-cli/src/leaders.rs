//! `windlass leaders`: who does which background duty.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use windlass::Timestamp;
use windlass::store::LeaderRecord;

use crate::session::Session;
use crate::text::{age, ago, listing, shown, thousands};

/// Prints who leads what.
pub(crate) async fn run(session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    let leaders = windlass.leaders().await?;
    let now = store.now().await?;
    let text = if session.is_json() {
        let leaders: Vec<Value> = leaders.iter().map(|leader| json(leader, now)).collect();
        crate::text::document(&leaders)?
    } else {
        table(&leaders, now)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// What a leader is at, in a word.
fn state(leader: &LeaderRecord, now: Timestamp) -> &'static str {
    match &leader.holder {
        None => "vacant",
        Some(holder) if holder.is_given_up => "given up",
        Some(holder) if holder.until <= now => "silent",
        Some(_) => "leads",
    }
}

pub(crate) fn json(leader: &LeaderRecord, now: Timestamp) -> Value {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let holder = leader.holder.as_ref();
    json!({
        "duty": leader.duty.word(),
        "state": state(leader, now),
        "term": leader.term.0,
        "holder": holder.map(|holder| holder.candidate.to_string()),
        "name": holder.map(|holder| &holder.name),
        "since": time(holder.map(|holder| holder.since)),
        "renewed_at": time(holder.map(|holder| holder.renewed_at)),
        "until": time(holder.map(|holder| holder.until)),
        "rotates_at": time(holder.and_then(|holder| holder.rotates_at)),
        "is_given_up": holder.is_some_and(|holder| holder.is_given_up),
        "runs": leader.runs,
        "items": leader.items,
        "errors": leader.errors,
        "every_seconds": leader.duty.every().map(|every| every.as_secs()),
        "batch": leader.duty.batch(),
        "busy_seconds": leader.busy.as_secs_f64(),
        "last_took_seconds": leader.last_took.map(|took| took.as_secs_f64()),
        "last_run_at": time(leader.last_run_at),
        "last_error": leader.last_error,
    })
}

pub(crate) fn table(leaders: &[LeaderRecord], now: Timestamp) -> String {
    let header = ["duty", "leader", "state", "term", "swept", "took", "items", "errors"];
    let row = |leader: &LeaderRecord| {
        let holder = leader.holder.as_ref();
        vec![
            leader.duty.to_string(),
            holder.map_or_else(|| "-".to_owned(), |holder| shown(&holder.name)),
            state(leader, now).to_owned(),
            leader.term.to_string(),
            ago(leader.last_run_at, now),
            leader.last_took.map_or_else(|| "-".to_owned(), took),
            thousands(leader.items),
            thousands(leader.errors),
        ]
    };
    let mut text = listing(&header, &[3, 5, 6, 7], leaders.iter().map(row));
    for leader in leaders {
        text += &rotation(leader, now);
        if let Some(error) = &leader.last_error {
            text += &format!("last error of {}: {}\n", leader.duty, shown(error));
        }
    }
    text
}

/// How long a sweep took, in few letters.
fn took(time: Duration) -> String {
    match time.as_millis() {
        0 => "<1 ms".to_owned(),
        millis @ 1..10_000 => format!("{millis} ms"),
        millis => format!("{} s", millis / 1_000),
    }
}

/// When another process may have a duty, if its leader rotates.
fn rotation(leader: &LeaderRecord, now: Timestamp) -> String {
    let holder = leader.holder.as_ref().filter(|holder| !holder.is_given_up);
    let Some(rotates_at) = holder.and_then(|holder| holder.rotates_at) else {
        return String::new();
    };
    let duty = leader.duty;
    match rotates_at.since(now) {
        left if left.is_zero() => format!("{duty} rotates as soon as another process is there\n"),
        left => format!("{duty} rotates in {}\n", age(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::CandidateId;
    use windlass::Term;
    use windlass::store::{Duty, Holder};

    #[test]
    fn the_table_says_who_leads_since_when_and_fits_a_narrow_terminal() {
        let now = Timestamp::from_micros(1_750_000_000_000_000);
        let holder = Holder {
            candidate: CandidateId::from_random(1),
            name: "worker-\u{1b}[2J".to_owned(),
            since: now,
            renewed_at: now,
            until: now + Duration::from_secs(10),
            rotates_at: Some(now + Duration::from_secs(185)),
            is_given_up: false,
        };
        let leader = |duty, holder| LeaderRecord {
            duty,
            term: Term(12),
            holder,
            runs: 3,
            items: 1_234_567,
            errors: 1,
            last_run_at: Some(now),
            busy: Duration::from_millis(40),
            last_took: Some(Duration::from_micros(12_345)),
            last_error: Some("away".to_owned()),
        };
        let leaders = [leader(Duty::PromoteDue, Some(holder)), leader(Duty::Reap, None)];
        let text = table(&leaders, now + Duration::from_secs(125));
        let lines: Vec<&str> = text.lines().collect();
        let expected = "promote_due  worker-\\u{1b}[2J  silent    12  2m 5s  12 ms  1,234,567  1";
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            expected.split_whitespace().collect::<Vec<_>>()
        );
        assert!(lines[2].starts_with("reap "), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(lines[3], "promote_due rotates in 1m");
        assert_eq!(lines[4], "last error of promote_due: away");
        let late = table(&leaders, now + Duration::from_secs(185));
        assert!(late.contains("promote_due rotates as soon as another process is there\n"));
        let value = json(&leaders[1], now);
        assert_eq!((&value["state"], &value["holder"]), (&json!("vacant"), &Value::Null));
    }
}
