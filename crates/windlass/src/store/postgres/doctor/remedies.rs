//! Findings of the audit's checks of the schema, with fixes.

use super::super::audit::CheckResult;
use super::super::migrate::{MIGRATIONS, Migration};
use super::super::split::statements;
use super::report::{Examined, Finding, FindingSeverity};

/// A check of the audit as one of the doctor.
pub(super) fn examined(result: CheckResult) -> Examined {
    let finding = |problem: &String| Finding {
        severity: FindingSeverity::Critical,
        problem: problem.clone(),
        cause: cause(&result.id).to_owned(),
        remedy: remedy(&result.id, problem),
    };
    Examined {
        findings: result.examples.iter().map(finding).collect(),
        id: result.id,
        title: result.title,
        skipped: result.is_skipped.then(|| "a newer program created the schema".to_owned()),
        found: result.violations,
        sql: Some(result.sql),
        took_ms: result.took_ms,
    }
}

fn cause(id: &str) -> &'static str {
    match id {
        "schema.indexes" => "queries that need it scan the whole table",
        "schema.constraints" => "invalid rows are no longer rejected",
        "schema.functions" => "starts in SQL can write rows that the engine does not expect",
        "schema.migrations" => "the schema may differ from the one that this program expects",
        _ => "two starts with one idempotency key can both create a run",
    }
}

fn remedy(id: &str, problem: &str) -> String {
    let is_missing = problem.ends_with("does not exist");
    let words: Vec<&str> = problem.split(' ').collect();
    let word = |place: usize| words.get(place).copied().unwrap_or_default();
    let name = word(1).trim_start_matches("windlass.");
    match id {
        "schema.constraints" if is_missing => {
            format!("alter table {} add constraint {name} … as in its migration", word(3))
        }
        "schema.constraints" => format!("alter table {} validate constraint {name}", word(3)),
        "schema.functions" => format!("recreate {} from its migration", word(1)),
        "schema.migrations" => {
            "use the program that created the schema, or windlass migrate on an empty database"
                .to_owned()
        }
        // The other checks are of indexes.
        _ if is_missing => make_index(name),
        _ if problem.ends_with("is not valid") => {
            format!("reindex index concurrently windlass.{name}")
        }
        _ => format!("drop index concurrently windlass.{name}; {}", make_index(name)),
    }
}

/// Returns the statement that recreates an index without blocking writes.
fn make_index(name: &str) -> String {
    let texts: Vec<String> = MIGRATIONS.iter().map(Migration::text).collect();
    let found = texts.iter().flat_map(|text| statements(text)).find_map(|statement| {
        let (head, rest) = statement.split_once("index ")?;
        let rest = rest.strip_prefix("if not exists ").unwrap_or(rest);
        let is_it = head.starts_with("create") && rest.split_whitespace().next() == Some(name);
        let words: Vec<&str> = rest.split_whitespace().collect();
        is_it.then(|| format!("{head}index concurrently {}", words.join(" ")))
    });
    found.unwrap_or_else(|| format!("recreate index {name} from its migration"))
}

#[cfg(test)]
mod tests {
    use super::super::super::audit::INDEXES;
    use super::*;

    #[test]
    fn every_index_can_be_made_again() {
        for (_, name) in INDEXES {
            let sql = make_index(name);
            assert!(sql.contains(&format!("index concurrently {name} on windlass.")), "{sql}");
        }
        let sql = make_index("runs_key");
        let wanted = "create unique index concurrently runs_key on windlass.runs \
                      (tenant, workflow, key) where key is not null";
        assert_eq!(sql, wanted);
    }
}
