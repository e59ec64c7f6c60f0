//! `windlass duties`: what programs do once in a while, by one process at a time.

use std::io::Write as _;

use serde_json::{Value, json};
use windlass::Timestamp;
use windlass::store::DutyRecord;

use crate::session::Session;
use crate::text::{age, ago, listing, seconds, shown, thousands};

/// What `windlass duties` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "forget")]
    json: bool,

    /// Delete a job that no program declares any more
    #[arg(long, value_name = "NAME")]
    forget: Option<String>,
}

/// Prints the duties, or forgets one.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let (windlass, store) = session.connect().await?;
    if let Some(name) = arguments.forget {
        anyhow::ensure!(windlass.forget_duty(&name).await?, "duty {name:?} does not exist");
        writeln!(std::io::stdout(), "duty {} is forgotten", shown(&name))?;
        return Ok(());
    }
    let duties = windlass.program_duties().await?;
    let now = store.now().await?;
    let text = if session.is_json() {
        let duties: Vec<Value> = duties.iter().map(|duty| json(duty, now)).collect();
        crate::text::document(&duties)?
    } else if duties.is_empty() {
        "no duties of programs\n".to_owned()
    } else {
        table(&duties, now)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// What a duty is at, in a word.
fn state(duty: &DutyRecord, now: Timestamp) -> &'static str {
    match duty.held_until() {
        Some(until) if until <= now => "lost",
        Some(_) => "at work",
        None if duty.next_at <= now => "due",
        None => "waits",
    }
}

fn json(duty: &DutyRecord, now: Timestamp) -> Value {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let holder = duty.holder.as_ref();
    json!({
        "name": duty.name.as_str(),
        "state": state(duty, now),
        "every_seconds": duty.every.as_secs_f64(),
        "next_at": duty.next_at.to_string(),
        "term": duty.term.0,
        "holder": holder.map(|holder| holder.candidate.to_string()),
        "process": holder.map(|holder| &holder.process),
        "since": time(holder.map(|holder| holder.since)),
        "until": time(duty.held_until()),
        "runs": duty.runs,
        "errors": duty.errors,
        "last_run_at": time(duty.last_run.map(|(at, _)| at)),
        "last_took_seconds": duty.last_run.map(|(_, took)| took.as_secs_f64()),
        "last_error": duty.last_error,
    })
}

fn table(duties: &[DutyRecord], now: Timestamp) -> String {
    let header = ["duty", "every", "state", "next", "process", "last", "took", "runs", "errors"];
    let row = |duty: &DutyRecord| {
        let process = duty.holder.as_ref().map(|holder| shown(&holder.process));
        let next = match duty.next_at.since(now) {
            none if none.is_zero() => "now".to_owned(),
            left => format!("in {}", age(left)),
        };
        vec![
            shown(duty.name.as_str()),
            age(duty.every),
            state(duty, now).to_owned(),
            next,
            process.unwrap_or_else(|| "-".to_owned()),
            ago(duty.last_run.map(|(at, _)| at), now),
            duty.last_run.map_or_else(|| "-".to_owned(), |(_, took)| seconds(took)),
            thousands(duty.runs),
            thousands(duty.errors),
        ]
    };
    let mut text = listing(&header, &[7, 8], duties.iter().map(row));
    for duty in duties {
        if let Some(error) = &duty.last_error {
            text += &format!("last error of {}: {}\n", shown(duty.name.as_str()), shown(error));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use windlass::store::DutyHolder;
    use windlass::{CandidateId, DutyName, Term};

    #[test]
    fn the_table_says_who_is_at_what_until_when_and_how_it_went() {
        let now = Timestamp::from_micros(1_750_000_000_000_000);
        let later = |seconds| now + Duration::from_secs(seconds);
        let holder = |until| DutyHolder {
            candidate: CandidateId::from_random(1),
            process: "worker-\u{1b}[2J".to_owned(),
            since: now,
            until,
        };
        let duty = |name: &str, holder| DutyRecord {
            name: DutyName::new(name).expect("it is a name"),
            every: Duration::from_secs(3_600),
            next_at: now,
            term: Term(3),
            holder,
            runs: 1_234,
            errors: 1,
            last_run: Some((now, Duration::from_secs(2))),
            last_error: Some("the disk is full".to_owned()),
        };
        let mut waits = duty("waits", Some(holder(None)));
        waits.next_at = later(125 + 60);
        let duties = [
            duty("sweep", Some(holder(Some(later(130))))),
            duty("lost", Some(holder(Some(later(20))))),
            waits,
            duty("new", None),
        ];
        let text = table(&duties, later(125));
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(words(1).starts_with("sweep 1h at work now worker-"), "{text}");
        assert!(words(1).ends_with("1,234 1"), "{text}");
        assert!(words(2).starts_with("lost 1h lost now worker-"), "{text}");
        assert!(words(3).starts_with("waits 1h waits in "), "{text}");
        assert!(words(4).starts_with("new 1h due now - "), "{text}");
        assert_eq!(lines[5], "last error of sweep: the disk is full");
        let json = json(&duties[0], later(125));
        assert_eq!((&json["state"], &json["every_seconds"]), (&"at work".into(), &3_600.0.into()));
    }
}
