//! `windlass workflows`: which workflows there are to start.

use serde_json::{Value, json};
use windlass::store::{WorkflowFilter, WorkflowRecord};
use windlass::{Timestamp, Windlass, WorkflowName};

use crate::session::Session;
use crate::text::{ago, listing, shown};

/// What `windlass workflows` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only versions of this workflow
    name: Option<String>,

    /// Maximum number of versions
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::text::whole_number::<u32>(1..=u32::MAX))]
    limit: u32,
}

/// Prints the workflows, by name and then the newest version first.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let name = arguments.name.map(WorkflowName::new).transpose().map_err(windlass::Error::from)?;
    let (windlass, store) = session.connect().await?;
    let (all, has_more) = read(&windlass, name.clone(), arguments.limit as usize).await?;
    if all.is_empty()
        && let Some(name) = &name
    {
        return Err(unknown(&windlass, name).await?);
    }
    let now = store.now().await?;
    let more = if has_more { "and more, see --limit\n" } else { "" };
    session.tell(|| all.iter().map(json).collect(), || table(&all, now) + more)
}

/// The first workflows, and whether there are more.
pub(crate) async fn read(
    windlass: &Windlass,
    name: Option<WorkflowName>,
    most: usize,
) -> anyhow::Result<(Vec<WorkflowRecord>, bool)> {
    let mut filter = WorkflowFilter { name, ..WorkflowFilter::default() };
    let mut all = Vec::new();
    loop {
        filter.limit = most - all.len();
        let page = windlass.workflows(filter.clone()).await?;
        all.extend(page.workflows);
        match page.next {
            Some(next) if all.len() < most => filter.after = Some(next),
            next => return Ok((all, next.is_some())),
        }
    }
}

/// How many workflows are looked at for names like one that is not there.
const LOOKED_AT_MAX: usize = 1_000;

/// How many names are offered instead of one that is not there.
const NEAREST_MAX: usize = 3;

/// The error that there is no such workflow, with the names that are nearest.
pub(crate) async fn unknown(
    windlass: &Windlass,
    name: &WorkflowName,
) -> anyhow::Result<anyhow::Error> {
    let (all, _) = read(windlass, None, LOOKED_AT_MAX).await?;
    let mut names: Vec<&str> = all.iter().map(|it| it.definition.name().as_str()).collect();
    names.dedup();
    let what = format!("workflow {:?}", name.as_str());
    let what = match nearest(name.as_str(), &names).as_slice() {
        [] if names.is_empty() => {
            format!("{what} (there are no workflows: a worker registers them)")
        }
        [] => format!("{what} (see windlass workflows)"),
        near => format!("{what} (the nearest: {})", near.join(", ")),
    };
    Ok(windlass::Error::from(windlass::store::StoreError::NotFound(what)).into())
}

/// The names that are most like this one, if any is like it.
fn nearest(name: &str, names: &[&str]) -> Vec<String> {
    let limit = (name.chars().count() / 2).max(2);
    let is_part = |other: &str| other.contains(name) || name.contains(other);
    let distance = |other: &str| if is_part(other) { 1 } else { edits(name, other) };
    let mut near: Vec<(usize, &str)> = names.iter().map(|it| (distance(it), *it)).collect();
    near.retain(|(distance, _)| *distance <= limit);
    near.sort();
    near.iter().take(NEAREST_MAX).map(|(_, name)| format!("{name:?}")).collect()
}

/// How many letters must be put in, taken out or replaced to make one text of the other.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = place + 1;
        for (column, found) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(*found != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

fn json(workflow: &WorkflowRecord) -> Value {
    let definition = &workflow.definition;
    let tasks = definition.tasks().iter().map(|task| task.name.to_string());
    json!({
        "name": definition.name(),
        "version": definition.version(),
        "tasks": tasks.collect::<Vec<_>>(),
        "registered_at": workflow.registered_at.to_string(),
    })
}

fn table(workflows: &[WorkflowRecord], now: Timestamp) -> String {
    if workflows.is_empty() {
        return "no workflows: a worker registers those that it has handlers for\n".to_owned();
    }
    let header = ["workflow", "version", "tasks", "registered"];
    let row = |workflow: &WorkflowRecord| {
        let definition = &workflow.definition;
        vec![
            shown(definition.name().as_str()),
            definition.version().to_string(),
            definition.tasks().len().to_string(),
            ago(Some(workflow.registered_at), now),
        ]
    };
    listing(&header, &[1, 2], workflows.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_offered_and_none_that_is_nothing_like_it() {
        let names = ["order", "order~undo", "refund", "mail", "mailing-list"];
        assert_eq!(nearest("ordr", &names), [r#""order""#]);
        assert_eq!(nearest("mai", &names), [r#""mail""#, r#""mailing-list""#]);
        assert_eq!(nearest("ordre", &names), [r#""order""#]);
        assert!(nearest("invoice-total", &names).is_empty());
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("a", "a")), (3, 3, 0));
    }
}
