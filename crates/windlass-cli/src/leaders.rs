//! `windlass leaders`: who does which background duty.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use windlass::Timestamp;
use windlass::store::LeaderRecord;

use crate::session::Session;
use crate::text::{age, listing, shown, thousands};

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

const LEADS: &str = "leads";

/// What a leader is at, in a word.
fn state(leader: &LeaderRecord, now: Timestamp) -> &'static str {
    match &leader.holder {
        None => "vacant",
        Some(holder) if holder.is_given_up => "given up",
        Some(holder) if holder.until <= now => "silent",
        Some(_) => LEADS,
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
        "last_error_at": time(leader.last_error_at().map(|(at, _)| at)),
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
            last_sweep(leader, now),
            leader.last_took.map_or_else(|| "-".to_owned(), took),
            thousands(leader.items),
            thousands(leader.errors),
        ]
    };
    let mut text = listing(&header, &[3, 5, 6, 7], leaders.iter().map(row));
    for leader in leaders {
        text += &rotation(leader, now);
        text += &last_error(leader);
    }
    text
}

/// From when on a leader that sweeps only when something is due is called idle.
const IDLE_AFTER: Duration = Duration::from_secs(5);

/// When the last sweep was. Some jobs sweep only when something is due: then they are idle, not stuck.
fn last_sweep(leader: &LeaderRecord, now: Timestamp) -> String {
    let Some(at) = leader.last_run_at else {
        return "-".to_owned();
    };
    let passed = now.since(at);
    let is_idle = leader.duty.every().is_none() && passed >= IDLE_AFTER;
    match is_idle && state(leader, now) == LEADS {
        true => format!("idle {}", age(passed)),
        false => format!("{} ago", age(passed)),
    }
}

/// The last error, with its time and whether later sweeps succeeded.
fn last_error(leader: &LeaderRecord) -> String {
    let Some(error) = &leader.last_error else {
        return String::new();
    };
    let duty = leader.duty;
    match leader.last_error_at() {
        Some((at, error)) if leader.last_run_at.is_some_and(|run_at| run_at > at) => {
            format!("past error of {duty}, at {at}; later sweeps succeeded: {}\n", shown(error))
        }
        Some((at, error)) => format!("last sweep of {duty} failed at {at}: {}\n", shown(error)),
        None => format!("last error of {duty}, time unknown: {}\n", shown(error)),
    }
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
        let expected =
            "promote_due  worker-\\u{1b}[2J  silent    12  2m 5s ago  12 ms  1,234,567  1";
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            expected.split_whitespace().collect::<Vec<_>>()
        );
        assert!(lines[2].starts_with("reap "), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(lines[3], "promote_due rotates in 1m");
        assert_eq!(lines[4], "last error of promote_due, time unknown: away");
        let late = table(&leaders, now + Duration::from_secs(185));
        assert!(late.contains("promote_due rotates as soon as another process is there\n"));
        let [mut leader, _] = leaders.clone();
        let idle = table(std::slice::from_ref(&leader), now + Duration::from_secs(6));
        assert!(idle.contains("  idle 6s  "), "{idle}");
        assert!(idle.lines().all(|line| line.chars().count() <= 80), "{idle}");
        leader.last_error = Some(format!("{now}: away"));
        let failing = table(std::slice::from_ref(&leader), now);
        assert!(failing.contains(&format!("last sweep of promote_due failed at {now}: away\n")));
        leader.last_run_at = Some(now + Duration::from_secs(1));
        let past = table(std::slice::from_ref(&leader), now);
        let said = format!("past error of promote_due, at {now}; later sweeps succeeded: away\n");
        assert!(past.contains(&said), "{past}");
        let value = json(&leaders[1], now);
        assert_eq!((&value["state"], &value["holder"]), (&json!("vacant"), &Value::Null));
    }
}
