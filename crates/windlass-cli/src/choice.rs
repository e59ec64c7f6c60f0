//! The run that a command is about: an id, the beginning of one, or the newest run.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use windlass::store::{RunCursor, RunFilter, RunRecord};
use windlass::{RunId, Timestamp, Windlass};

use crate::text::shown;

/// The fewest characters of a prefix.
const PREFIX_CHARS_MIN: usize = 4;

/// The most pages of runs that are searched for a prefix, from the newest run and from the time that
/// the prefix stands for.
const PAGES_MAX: usize = 10;

/// The most candidates that an ambiguous prefix lists.
const CANDIDATES_MAX: usize = 10;

/// How far the clock that made an id may differ from the clock of the database.
const CLOCK_SLACK: Duration = Duration::from_secs(3_600);

/// A run id, or the beginning of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunPrefix {
    Whole(RunId),
    /// Hexadecimal digits and hyphens, in lower case.
    Prefix(String),
}

impl FromStr for RunPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(id) = text.parse() {
            return Ok(RunPrefix::Whole(id));
        }
        let is_of_id = |letter: char| letter.is_ascii_hexdigit() || letter == '-';
        if text.chars().all(is_of_id) && (PREFIX_CHARS_MIN..36).contains(&text.len()) {
            return Ok(RunPrefix::Prefix(text.to_ascii_lowercase()));
        }
        Err(format!(
            "expected a run id (a UUID) or at least its first {PREFIX_CHARS_MIN} characters"
        ))
    }
}

impl RunPrefix {
    /// Returns the one run that it names. A whole id is not looked up.
    pub(crate) async fn resolve(&self, windlass: &Windlass) -> anyhow::Result<RunId> {
        let prefix = match self {
            RunPrefix::Whole(id) => return Ok(*id),
            RunPrefix::Prefix(prefix) => prefix,
        };
        let mut found = BTreeMap::new();
        let is_complete = search(windlass, prefix, None, &mut found).await?;
        if !is_complete && let Some(after) = newest_of(prefix) {
            search(windlass, prefix, Some(after), &mut found).await?;
        }
        let mut runs = found.into_iter();
        match (runs.next(), runs.len()) {
            (None, _) if is_complete => bail!("no run id starts with {prefix:?}"),
            (None, _) => bail!(
                "no run id starts with {prefix:?} among the newest runs and those of its time; \
                 give the whole id"
            ),
            (Some((id, _)), 0) => Ok(id),
            (Some(first), others) => {
                let shown = [first].into_iter().chain(runs.by_ref().take(CANDIDATES_MAX - 1));
                let lines: Vec<String> = shown.map(|(_, run)| candidate(&run)).collect();
                let more = match (others + 1).saturating_sub(lines.len()) {
                    0 => String::new(),
                    more => format!("\nand {more} more"),
                };
                let count = others + 1;
                bail!(
                    "run id prefix {prefix:?} is ambiguous, {count} runs match; give more \
                     characters:\n{}{more}",
                    lines.join("\n")
                );
            }
        }
    }
}

fn candidate(run: &RunRecord) -> String {
    let RunRecord { id, workflow, state, created_at, .. } = run;
    format!("{id}  {}  {state}  {created_at}", shown(workflow.as_str()))
}

/// Adds the runs whose ids start with the prefix. Returns whether the list was read to its end.
async fn search(
    windlass: &Windlass,
    prefix: &str,
    after: Option<RunCursor>,
    found: &mut BTreeMap<RunId, RunRecord>,
) -> Result<bool, windlass::Error> {
    let mut filter = RunFilter { after, ..RunFilter::default() };
    for _ in 0..PAGES_MAX {
        let page = windlass.list(filter.clone()).await?;
        let matches = |run: &RunRecord| run.id.to_string().starts_with(prefix);
        found.extend(page.runs.into_iter().filter(matches).map(|run| (run.id, run)));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return Ok(true),
        }
    }
    Ok(false)
}

/// Returns the place in the list of runs from which ids with the prefix may follow. An id that
/// Windlass made begins with its time in milliseconds, as 12 hexadecimal digits.
fn newest_of(prefix: &str) -> Option<RunCursor> {
    let digits: String = prefix.chars().filter(|letter| *letter != '-').take(12).collect();
    let millis = i64::from_str_radix(&format!("{digits:f<12}"), 16).ok()?;
    let created_at = Timestamp::from_micros(millis.checked_mul(1_000)?) + CLOCK_SLACK;
    Some(RunCursor { created_at, id: RunId::from_uuid(uuid::Uuid::max()) })
}

/// The arguments that name a run.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "which-run", required = true, multiple = false)]
pub(crate) struct RunChoice {
    /// Run id, or a unique prefix of at least 4 characters
    run: Option<RunPrefix>,

    /// Use the newest run
    #[arg(long)]
    last: bool,
}

impl RunChoice {
    /// Returns the run that the arguments name.
    pub(crate) async fn resolve(&self, windlass: &Windlass) -> anyhow::Result<RunId> {
        match &self.run {
            Some(run) => run.resolve(windlass).await,
            None => newest(windlass).await,
        }
    }
}

/// Returns the newest run.
pub(crate) async fn newest(windlass: &Windlass) -> anyhow::Result<RunId> {
    let filter = RunFilter { limit: 1, ..RunFilter::default() };
    match windlass.list(filter).await?.runs.first() {
        Some(run) => Ok(run.id),
        None => bail!("--last: no run exists"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use windlass::Workflow;

    fn id(text: &str) -> RunId {
        text.parse().expect("it is an id")
    }

    #[test]
    fn a_prefix_has_at_least_four_characters_of_an_id() {
        let whole = "01981c2e-7a40-7c1f-9d57-0242ac120002";
        assert_eq!(whole.parse(), Ok(RunPrefix::Whole(id(whole))));
        assert_eq!("01981C2E-7".parse(), Ok(RunPrefix::Prefix("01981c2e-7".to_owned())));
        for wrong in ["", "019", "xyz1", "01981c2e-7a40-7c1f-9d57-0242ac1200021"] {
            let error = wrong.parse::<RunPrefix>().expect_err(wrong);
            assert!(error.contains("at least its first 4 characters"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_unique_prefix_names_a_run_and_an_ambiguous_one_lists_the_candidates() {
        let windlass = Windlass::memory();
        let mut mail = Workflow::<Value>::builder("mail");
        mail.task("send").run(async |_: windlass::Ctx<Value>| Ok::<_, windlass::TaskError>(1));
        let mail = mail.build().expect("it is one");
        let resolve = async |text: &str| {
            let prefix: RunPrefix = text.parse().expect("it is a prefix");
            prefix.resolve(&windlass).await.map_err(|error| error.to_string())
        };
        assert_eq!(newest(&windlass).await.expect_err("none").to_string(), "--last: no run exists");
        let one = id("aaaa1111-7a40-7c1f-9d57-000000000001");
        let two = id("aaaa2222-7a40-7c1f-9d57-000000000002");
        for run in [one, two] {
            windlass.start(&mail, Value::Null).id(run).await.expect("it starts");
        }
        assert_eq!(resolve("aaaa1").await, Ok(one));
        assert_eq!(resolve("AAAA2222-7a40").await, Ok(two));
        assert_eq!(newest(&windlass).await.expect("there is one"), two);
        let error = resolve("aaaa").await.expect_err("both match");
        assert!(error.starts_with("run id prefix \"aaaa\" is ambiguous, 2 runs match"), "{error}");
        assert!(error.contains(&one.to_string()) && error.contains(&two.to_string()), "{error}");
        let error = resolve("bbbb").await.expect_err("none matches");
        assert_eq!(error, "no run id starts with \"bbbb\"");
    }

    #[test]
    fn a_prefix_is_looked_for_from_its_time_on() {
        let run = RunId::from_parts("2025-06-15T15:06:40Z".parse().expect("a time"), 7);
        let prefix: String = run.to_string().chars().take(13).collect();
        let from = newest_of(&prefix).expect("it has a time").created_at;
        assert_eq!(from.to_string(), "2025-06-15T16:06:40Z");
    }
}
