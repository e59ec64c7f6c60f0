//! What a migration would do, and which locks it would take for that.

use std::fmt;

use super::split::statements;

/// What [`migrate`](super::migrate) would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The version of the schema now; 0 if there is none.
    pub from: u32,
    /// The version of the schema afterwards.
    pub to: u32,
    /// The version that this program knows.
    pub known: u32,
    /// The migrations that would be applied, the oldest first.
    pub migrations: Vec<PlannedMigration>,
}

/// A migration that would be applied, in a transaction of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMigration {
    /// The version of the schema that it makes.
    pub version: u32,
    /// What it is called.
    pub name: String,
    /// Its statements, in their order. Locks are kept until the last one is done.
    pub statements: Vec<PlannedStatement>,
}

/// A statement of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedStatement {
    /// Its text.
    pub sql: String,
    /// The locks it takes on tables and views that are there before it. `None` if that is
    /// not known.
    pub locks: Option<Vec<TableLock>>,
}

/// A lock on a table or view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableLock {
    /// What is locked, such as `windlass.runs`.
    pub table: String,
    /// How.
    pub mode: LockMode,
}

/// How a table is locked, the weakest first. The names are PostgreSQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// As by reading: only `AccessExclusive` waits for it.
    AccessShare,
    /// As by locking rows.
    RowShare,
    /// As by writing rows.
    RowExclusive,
    /// As by some forms of `alter table`: readers and writers go on.
    ShareUpdateExclusive,
    /// As by making an index: writers wait.
    Share,
    /// As by adding a foreign key: writers wait.
    ShareRowExclusive,
    /// Readers go on, everyone else waits.
    Exclusive,
    /// Everyone waits.
    AccessExclusive,
}

impl LockMode {
    /// Its name, such as `access exclusive`.
    pub fn name(self) -> &'static str {
        match self {
            LockMode::AccessShare => "access share",
            LockMode::RowShare => "row share",
            LockMode::RowExclusive => "row exclusive",
            LockMode::ShareUpdateExclusive => "share update exclusive",
            LockMode::Share => "share",
            LockMode::ShareRowExclusive => "share row exclusive",
            LockMode::Exclusive => "exclusive",
            LockMode::AccessExclusive => "access exclusive",
        }
    }
}

impl fmt::Display for TableLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.mode.name(), self.table)
    }
}

impl PlannedStatement {
    /// Every statement of a text, with its locks.
    pub(super) fn all(text: &str) -> Vec<PlannedStatement> {
        let plan = |sql: &str| PlannedStatement { sql: sql.to_owned(), locks: locks(sql) };
        statements(text).into_iter().map(plan).collect()
    }
}

/// The locks of a statement on what is there before it, by the kind of statement. `None`
/// for a kind that is not known here.
///
/// Tables are those of the schema `windlass`, by their full names.
fn locks(sql: &str) -> Option<Vec<TableLock>> {
    let words = Words::of(sql);
    let kind: Vec<&str> = words.0.iter().take(4).map(String::as_str).collect();
    let mut locks = Vec::new();
    match kind.as_slice() {
        ["create", "schema" | "sequence" | "type", ..]
        | ["revoke", "execute", "on", "function"] => {}
        ["create", "table", ..] => {
            locks.extend(words.behind("references", LockMode::ShareRowExclusive));
        }
        ["create", "index", ..] | ["create", "unique", "index", ..] => {
            locks.extend(words.behind("on", LockMode::Share).into_iter().take(1));
        }
        ["create", "trigger", ..] => {
            locks.extend(words.behind("on", LockMode::ShareRowExclusive).into_iter().take(1));
        }
        ["create", "view", ..] => {
            locks.extend(words.mentioned(1, LockMode::AccessShare));
        }
        ["create", "or", "replace", "view"] => {
            locks.extend(words.mentioned(0, LockMode::AccessShare));
            if let Some(view) = locks.first_mut() {
                view.mode = LockMode::AccessExclusive;
            }
        }
        // The body of a function in SQL is looked at when it is made.
        ["create", "function", ..] | ["create", "or", "replace", "function"] => {
            if words.has("language", "sql") {
                locks.extend(words.mentioned(0, LockMode::AccessShare));
            }
        }
        ["drop", "table" | "view", ..] => {
            locks.extend(words.mentioned(0, LockMode::AccessExclusive));
        }
        ["drop", "function" | "sequence", ..] => {}
        ["alter", "table", ..] => {
            locks.extend(words.mentioned(0, alter_table(&words)).into_iter().take(1));
            locks.extend(words.behind("references", LockMode::ShareRowExclusive));
        }
        ["insert" | "update" | "delete", ..] => {
            locks.extend(words.mentioned(0, LockMode::AccessShare));
            if let Some(table) = locks.first_mut() {
                table.mode = LockMode::RowExclusive;
            }
        }
        _ => return None,
    }
    Some(strongest(locks))
}

/// What a form of `alter table` locks; the strongest, if it is not one of the gentle ones.
fn alter_table(words: &Words) -> LockMode {
    let is = |first: &str, second: &str| words.has(first, second);
    let is_alone = !words.0.iter().any(|word| word == ",");
    if is_alone && (is("validate", "constraint") || is("set", "(") || is("set", "statistics")) {
        return LockMode::ShareUpdateExclusive;
    }
    if is_alone && is("foreign", "key") {
        return LockMode::ShareRowExclusive;
    }
    LockMode::AccessExclusive
}

/// One lock for each table.
fn strongest(mut locks: Vec<TableLock>) -> Vec<TableLock> {
    locks.sort_by(|a, b| (&a.table, b.mode).cmp(&(&b.table, a.mode)));
    locks.dedup_by(|next, kept| next.table == kept.table);
    locks
}

/// A statement in words: names with their schemas, numbers, and each sign for itself.
struct Words(Vec<String>);

impl Words {
    fn of(sql: &str) -> Words {
        let mut words = Vec::new();
        let mut word = String::new();
        let without_comments: Vec<&str> =
            sql.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
        for letter in without_comments.join("\n").chars() {
            if letter.is_alphanumeric() || matches!(letter, '_' | '.') {
                word.extend(letter.to_lowercase());
                continue;
            }
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if !letter.is_whitespace() {
                words.push(letter.to_string());
            }
        }
        if !word.is_empty() {
            words.push(word);
        }
        Words(words)
    }

    /// Whether two words stand next to each other.
    fn has(&self, first: &str, second: &str) -> bool {
        self.0.windows(2).any(|pair| pair[0] == first && pair[1] == second)
    }

    /// Our tables that are named, behind the first so many.
    fn mentioned(&self, skip: usize, mode: LockMode) -> Vec<TableLock> {
        let tables = self.0.iter().enumerate().filter(|(at, word)| {
            let is_called = self.0.get(at + 1).is_some_and(|next| next == "(");
            // `insert into t (a)` names a table, `f(a)` a function.
            let is_target = *at > 0 && self.0[at - 1] == "into";
            word.starts_with("windlass.") && (is_target || !is_called)
        });
        let lock = |(_, word): (usize, &String)| TableLock { table: word.clone(), mode };
        tables.skip(skip).map(lock).collect()
    }

    /// Our tables that are named right behind a word.
    fn behind(&self, word: &str, mode: LockMode) -> Vec<TableLock> {
        let pairs = self.0.windows(2).filter(|pair| pair[0] == word);
        let tables = pairs.map(|pair| &pair[1]).filter(|table| table.starts_with("windlass."));
        tables.map(|table| TableLock { table: table.clone(), mode }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_statement_says_what_it_locks() {
        let cases = [
            (
                "create table windlass.a (b int references windlass.c (d))",
                "share row exclusive on windlass.c",
            ),
            ("create unique index i on windlass.a (b)", "share on windlass.a"),
            (
                "create view windlass.v as select 1 from windlass.a join windlass.b on windlass.f(1)",
                "access share on windlass.a, access share on windlass.b",
            ),
            (
                "create or replace view windlass.v as select 1 from windlass.a",
                "access share on windlass.a, access exclusive on windlass.v",
            ),
            ("alter table windlass.a add column b int", "access exclusive on windlass.a"),
            (
                "alter table windlass.a set (fillfactor = 50)",
                "share update exclusive on windlass.a",
            ),
            (
                "alter table windlass.a validate constraint c",
                "share update exclusive on windlass.a",
            ),
            (
                "alter table windlass.a set (fillfactor = 50), add column b int",
                "access exclusive on windlass.a",
            ),
            (
                "alter table windlass.a add constraint c foreign key (b) references windlass.d (e)",
                "share row exclusive on windlass.a, share row exclusive on windlass.d",
            ),
            (
                "insert into windlass.a (b) select c from windlass.d",
                "row exclusive on windlass.a, access share on windlass.d",
            ),
            (
                "create function windlass.f() returns int language plpgsql as $$ begin return (select 1 from windlass.a); end $$",
                "",
            ),
        ];
        for (sql, wanted) in cases {
            let locks = locks(sql).expect(sql);
            let texts: Vec<String> = locks.iter().map(ToString::to_string).collect();
            assert_eq!(texts.join(", "), wanted, "{sql}");
        }
        assert_eq!(locks("vacuum windlass.a"), None);
    }
}
