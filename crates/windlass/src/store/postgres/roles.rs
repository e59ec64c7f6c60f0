//! The roles of a database: who changes the schema, who runs the engine, and behind whom tenants
//! read.
//!
//! Roles belong to a whole server, and making them is not a migration's to do. So what makes them is
//! SQL that someone who may do so reads and runs. It can be run again at any time, and is to be run
//! again when a migration has made tables.

/// The longest name of a role, which is PostgreSQL's own limit.
const ROLE_BYTES_MAX: usize = 63;

/// The names of the roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Owns the schema and changes it: `windlass migrate`.
    pub migration: String,
    /// Reads and writes all tables, and changes none: servers and programs with a database.
    pub engine: String,
    /// Reads one tenant's rows; nobody connects as it, the engine takes it on.
    pub api: String,
}

impl Default for Roles {
    fn default() -> Self {
        let name = |name: &str| format!("windlass_{name}");
        Roles { migration: name("owner"), engine: name("engine"), api: name("api") }
    }
}

/// The tables of which the API's role sees the rows of the tenant that a transaction names.
pub const WALLED_TABLES: [&str; 13] = [
    "archived_runs",
    "dead_letters",
    "history",
    "leases",
    "notes",
    "operator_log",
    "ready",
    "runs",
    "schedule_fires",
    "schedules",
    "steps",
    "task_rows",
    "timers",
];

/// The tables that it sees whole: what they say is no tenant's.
pub(super) const SHARED_TABLES: [&str; 1] = ["definition_tasks"];

/// The views through which it reads, with its own rights and not with those of their owner.
pub(super) const WALLED_VIEWS: [&str; 2] = ["events", "task_states"];

/// The SQL that makes the roles, gives each what it needs and sets up row level security. It is one
/// transaction, for `psql`, run by a superuser.
///
/// # Errors
///
/// A sentence if a name is none that can be written everywhere: letters, digits, `_`, `-`, `.` and
/// `$`, at most 63 of them; or if two roles have the same.
pub fn grants(roles: &Roles) -> Result<String, String> {
    let all = [("migration", &roles.migration), ("engine", &roles.engine), ("API", &roles.api)];
    for (place, (what, name)) in all.iter().enumerate() {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.$".contains(letter);
        if name.is_empty() || name.len() > ROLE_BYTES_MAX || !name.chars().all(is_plain) {
            return Err(format!(
                "the name {name:?} of the {what} role is not 1 to {ROLE_BYTES_MAX} letters, digits, \
                 `_`, `-`, `.` or `$`"
            ));
        }
        if let Some((other, _)) = all.iter().skip(place + 1).find(|(_, other)| other == name) {
            return Err(format!("the {what} role and the {other} role are both {name:?}"));
        }
    }
    let text = include_str!("roles.sql");
    let names = |names: &[&str]| {
        names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
    };
    let text = text
        .replace("{owner}", &quoted(&roles.migration))
        .replace("{engine}", &quoted(&roles.engine))
        .replace("{api}", &quoted(&roles.api))
        .replace("{owner name}", &literal(&roles.migration))
        .replace("{engine name}", &literal(&roles.engine))
        .replace("{api name}", &literal(&roles.api))
        .replace("{walled views}", &names(&WALLED_VIEWS))
        .replace("{walled tables}", &names(&WALLED_TABLES));
    Ok(text)
}

/// A name as an identifier of SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A name as a text of SQL.
fn literal(name: &str) -> String {
    format!("'{}'", name.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in_and_what_is_no_name_is_refused() {
        let roles = Roles { api: "web.read-only".to_owned(), ..Roles::default() };
        let text = grants(&roles).expect("they are names");
        assert!(text.contains(r#"grant select on windlass.definition_tasks to "web.read-only""#));
        assert!(text.contains("'web.read-only'") && text.contains("\"windlass_owner\""));
        assert!(!text.contains("name}") && !text.contains("{walled"), "nothing is left to fill in");
        for name in ["", "a b", "x'; drop table y", "a\nb", "é", &"x".repeat(64)] {
            let error = grants(&Roles { engine: name.to_owned(), ..Roles::default() });
            assert!(error.is_err_and(|error| error.contains("engine")), "{name:?}");
        }
        let same = Roles { api: "windlass_engine".to_owned(), ..Roles::default() };
        assert!(grants(&same).is_err(), "one role cannot be two");
    }
}
