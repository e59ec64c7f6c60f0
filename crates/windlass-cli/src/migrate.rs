//! `windlass migrate`: the schema of a database, brought up to date or looked at.

use std::process::ExitCode;

use serde_json::{Value, json};
use windlass::store::postgres::{
    Migrated, Plan, PlannedMigration, PlannedStatement, Roles, grants, migrate, plan,
};

use crate::failure::usage;
use crate::session::Session;
use crate::text::count;

/// What `windlass migrate` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print the statements and their locks, and change nothing
    #[arg(long)]
    plan: bool,

    /// Print the SQL that creates the database roles and their grants, for psql
    #[arg(long, conflicts_with = "plan")]
    grants: bool,

    /// Role that owns the schema and migrates
    #[arg(long, value_name = "ROLE", default_value = "windlass_owner", requires = "grants")]
    migration_role: String,

    /// Role that servers and programs connect as
    #[arg(long, value_name = "ROLE", default_value = "windlass_engine", requires = "grants")]
    engine_role: String,

    /// Role that row-level security restricts, see `windlass serve --api-role`
    #[arg(long, value_name = "ROLE", default_value = "windlass_api", requires = "grants")]
    api_role: String,
}

/// Migrates, or plans to, and says what is done.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<ExitCode> {
    if arguments.grants {
        let Arguments { migration_role, engine_role, api_role, .. } = arguments;
        let roles = Roles { migration: migration_role, engine: engine_role, api: api_role };
        let sql = grants(&roles).map_err(usage)?;
        session.tell(|| json!({ "sql": sql }), || sql.clone())?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = session.database("migrate")?;
    // Not written bit by bit: whoever stops reading does not stop a migration.
    if arguments.plan {
        let plan = plan(&options).await?;
        session.tell(|| plan_json(&plan), || render_plan(&plan))?;
    } else {
        let done = migrate(&options).await?;
        let Migrated { from, to, known, applied } = &done;
        let document = || json!({ "from": from, "to": to, "known": known, "applied": applied });
        session.tell(document, || render(&done))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was done.
fn render(migrated: &Migrated) -> String {
    let Migrated { from, to, known, applied } = migrated;
    if applied.is_empty() {
        return format!("{}\n", nothing_to_do(*to, *known));
    }
    let mut text: String = applied.iter().map(|name| format!("applied {name}\n")).collect();
    let migrations = count(applied.len(), "migration");
    text += &format!("the schema went from version {from} to {to}: {migrations}");
    match usize::try_from(to - from).unwrap_or(usize::MAX).saturating_sub(applied.len()) {
        0 => {}
        others => text += &format!(", and {others} by others at the same time"),
    }
    text.push('\n');
    text
}

/// What to say of a schema to which nothing is to be done.
fn nothing_to_do(found: u32, known: u32) -> String {
    if found <= known {
        return format!("the schema is up to date: version {found}");
    }
    format!(
        "the schema is version {found}, newer than this program, which knows version {known} and \
         works with it: nothing to do"
    )
}

/// What would be done, as SQL with comments.
fn render_plan(plan: &Plan) -> String {
    let Plan { from, to, known, migrations } = plan;
    if migrations.is_empty() {
        return format!("-- {}\n", nothing_to_do(*to, *known));
    }
    let number = count(migrations.len(), "migration");
    let mut text = format!(
        "-- the schema would go from version {from} to {to}: {number}\n\
         -- to be read; `windlass migrate` does it, and notes in windlass.migrations what it did\n"
    );
    for migration in migrations {
        let (version, name) = (migration.version, &migration.name);
        text += &format!("\n-- migration {version:04}_{name}, one transaction\n");
        for statement in &migration.statements {
            text += &format!("\n-- locks: {}\n", locks(statement));
            text += &format!("{};\n", statement.sql.trim().trim_end_matches(';'));
        }
    }
    text
}

fn plan_json(plan: &Plan) -> Value {
    let statement = |it: &PlannedStatement| {
        let locks = it.locks.as_ref();
        let locks = locks.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        json!({ "sql": it.sql, "locks": locks })
    };
    let migration = |it: &PlannedMigration| {
        let statements: Vec<Value> = it.statements.iter().map(statement).collect();
        json!({ "version": it.version, "name": it.name, "statements": statements })
    };
    let migrations: Vec<Value> = plan.migrations.iter().map(migration).collect();
    json!({ "from": plan.from, "to": plan.to, "known": plan.known, "migrations": migrations })
}

fn locks(statement: &PlannedStatement) -> String {
    match &statement.locks {
        None => "not known".to_owned(),
        Some(locks) if locks.is_empty() => "none on what is there".to_owned(),
        Some(locks) => locks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_applied_is_listed_before_the_versions() {
        let mut migrated = Migrated { from: 1, to: 3, known: 3, applied: vec![] };
        assert_eq!(render(&migrated), "the schema is up to date: version 3\n");
        let newer = Migrated { from: 4, to: 4, known: 3, applied: vec![] };
        let text = "the schema is version 4, newer than this program, which knows version 3 and \
                    works with it: nothing to do\n";
        assert_eq!(render(&newer), text);
        migrated.applied = vec!["0002_b".to_owned(), "0003_c".to_owned()];
        let text = "applied 0002_b\napplied 0003_c\n\
                    the schema went from version 1 to 3: 2 migrations\n";
        assert_eq!(render(&migrated), text);
    }

    #[test]
    fn what_others_applied_at_the_same_time_is_not_claimed() {
        let applied = vec!["0001_a".to_owned()];
        let text = "applied 0001_a\nthe schema went from version 0 to 3: 1 migration, and 2 by \
                    others at the same time\n";
        assert_eq!(render(&Migrated { from: 0, to: 3, known: 3, applied }), text);
    }
}
