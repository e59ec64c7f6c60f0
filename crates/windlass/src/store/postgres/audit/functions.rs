//! The functions and migrations that the schema must have, read from the texts that made it.
//!
//! Nothing is listed by hand: what a migration says of a function is what the auditor
//! expects. Texts are compared by their hashes, which the server computes.

use std::collections::BTreeMap;

use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::super::migrate::{MIGRATIONS, Migration};
use super::super::split::statements;

/// A function as its migration makes it.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    /// Its name and the types of its parameters, as in `windlass.refuse(integer,text,text)`.
    signature: String,
    /// Its language and how it may be called, in the order of `schema_functions.sql`.
    traits: String,
    body: String,
}

impl Function {
    /// Reads a statement; `None` if it makes no function.
    fn read(statement: &str) -> Option<Function> {
        let rest = statement.strip_prefix("create ")?;
        let rest = rest.strip_prefix("or replace ").unwrap_or(rest).strip_prefix("function ")?;
        let (name, rest) = rest.split_once('(')?;
        let (parameters, rest) = rest.split_once(')')?;
        let (head, rest) = rest.split_once("$$")?;
        let (body, _) = rest.rsplit_once("$$")?;
        let types: Vec<&str> = parameters.split(',').filter_map(type_of).collect();
        let signature = format!("{}({})", name.trim(), types.join(","));
        Some(Function { signature, traits: traits(head), body: body.to_owned() })
    }
}

/// The type of a parameter such as `delay interval default '0'`.
fn type_of(parameter: &str) -> Option<&str> {
    let (_, type_name) = parameter.trim().split_once(char::is_whitespace)?;
    Some(type_name.split_once(" default ").map_or(type_name, |(type_name, _)| type_name).trim())
}

/// What stands between the parameters and the body.
fn traits(head: &str) -> String {
    let lines: Vec<&str> =
        head.lines().map(|line| line.split("--").next().unwrap_or_default().trim()).collect();
    let words = format!(" {} ", lines.join(" "));
    let has = |word: &str| words.contains(&format!(" {word} "));
    let language = words.split_once(" language ").map_or("", |(_, rest)| rest);
    let mut traits = vec![language.split(' ').next().unwrap_or_default().to_owned()];
    let volatility = ["immutable", "stable"].into_iter().find(|word| has(word));
    traits.push(volatility.unwrap_or("volatile").to_owned());
    for word in ["strict", "parallel safe", "security definer"] {
        if has(word) {
            traits.push(word.to_owned());
        }
    }
    let settings: Vec<String> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("set "))
        .map(|setting| setting.replacen(" = ", "=", 1))
        .collect();
    if !settings.is_empty() {
        traits.push(format!("set {}", settings.join("; ")));
    }
    traits.join(" ")
}

/// Every function that the migrations leave behind.
fn functions() -> Vec<Function> {
    let mut functions = BTreeMap::new();
    for text in MIGRATIONS.iter().map(Migration::text) {
        for function in statements(&text).into_iter().filter_map(Function::read) {
            functions.insert(function.signature.clone(), function);
        }
    }
    functions.into_values().collect()
}

/// What the schema must have, as rows of `values` lists.
#[derive(Default)]
pub(super) struct Expected {
    /// The rows (signature, traits, hash of the body) of functions.
    pub(super) functions: String,
    /// The rows (version, name, checksum) of migrations.
    pub(super) migrations: String,
}

impl Expected {
    /// Lets the server compute the hashes.
    pub(super) async fn look_up(tx: &Transaction<'_>) -> Result<Self, tokio_postgres::Error> {
        let functions = functions();
        let bodies: Vec<&str> = functions.iter().map(|it| it.body.as_str()).collect();
        let texts: Vec<String> = MIGRATIONS.iter().map(Migration::text).collect();
        let function = |(function, hash): (&Function, String)| {
            format!("('{}', '{}', '{hash}')", function.signature, function.traits)
        };
        let migration = |(migration, hash): (&Migration, String)| {
            format!("({}, '{}', '{hash}')", migration.version, migration.name)
        };
        let functions: Vec<String> =
            functions.iter().zip(hashes(tx, &bodies).await?).map(function).collect();
        let migrations: Vec<String> =
            MIGRATIONS.iter().zip(hashes(tx, &texts).await?).map(migration).collect();
        Ok(Expected { functions: functions.join(",\n"), migrations: migrations.join(",\n") })
    }
}

async fn hashes<T>(tx: &Transaction<'_>, texts: &[T]) -> Result<Vec<String>, tokio_postgres::Error>
where
    T: tokio_postgres::types::ToSql + Sync,
{
    let sql = "select encode(sha256(convert_to(t.text, 'UTF8')), 'hex')
        from unnest($1::text[]) with ordinality as t (text, place) order by t.place";
    let rows = tx.query_typed(sql, &[(&texts, Type::TEXT_ARRAY)]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_read_from_the_statement_that_makes_it() {
        let statement = "create function windlass.f(\n    a uuid[],\n    b text default null\n)\n\
             returns table (c integer)\n-- It is not stable.\n\
             language plpgsql volatile security definer\n\
             set search_path = pg_catalog, pg_temp\nset jit = off\nas $$\nbegin\nend\n$$";
        let function = Function::read(statement).expect("it makes a function");
        assert_eq!(function.signature, "windlass.f(uuid[],text)");
        assert_eq!(
            function.traits,
            "plpgsql volatile security definer set search_path=pg_catalog, pg_temp; jit=off"
        );
        assert_eq!(function.body, "\nbegin\nend\n");
        let statement = "create or replace function windlass.g() returns text\n\
             language sql immutable strict parallel safe\nas $$ select 'x' $$";
        let function = Function::read(statement).expect("it makes a function");
        assert_eq!(function.signature, "windlass.g()");
        assert_eq!(function.traits, "sql immutable strict parallel safe");
        assert_eq!(Function::read("create table windlass.t ()"), None);
    }

    #[test]
    fn no_function_of_the_migrations_is_overlooked() {
        let texts: Vec<String> = MIGRATIONS.iter().map(Migration::text).collect();
        let all = texts.iter().flat_map(|text| statements(text));
        let makes_one = |it: &&str| it.contains("function windlass.") && it.contains("create");
        let count = all.filter(|it| makes_one(it) && !it.starts_with("create trigger"));
        assert_eq!(functions().len(), count.count());
    }
}
