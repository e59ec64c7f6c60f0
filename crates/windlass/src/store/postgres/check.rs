//! Whether a database is one that can be worked with, and what to say if it is not.

use super::address::Target;
use super::fault::{Fault, Remedy, describe};
use super::migrate;
use super::pool::{Pool, sql};
use crate::{Error, ErrorKind};

/// The oldest server, as it counts its versions itself.
const SERVER_VERSION_MIN: i32 = 140_000;

sql!(CHECK_SERVER, "check_server.sql", []);
sql!(SCHEMA_VERSION, "schema_version.sql", []);

/// Connects once and looks.
pub(super) async fn check(pool: &Pool, target: &Target) -> Result<(), Error> {
    let version = match found_version(pool, target).await {
        Ok(version) => version,
        Err(Refusal::Error(error)) => return Err(error),
        Err(Refusal::Fault(fault)) => return Err(refused(target, fault)),
    };
    check_version(version, &target.name())
}

/// Refuses a schema of another version.
pub(super) fn check_version(found: i32, name: &str) -> Result<(), Error> {
    let wanted = migrate::VERSION;
    let text = match found.cmp(&wanted) {
        std::cmp::Ordering::Equal => return Ok(()),
        std::cmp::Ordering::Less if found == 0 => {
            format!("database {name} has no schema of Windlass; make it with `windlass migrate`")
        }
        std::cmp::Ordering::Less => format!(
            "the schema of database {name} is version {found}, this program needs version \
             {wanted}; bring it up to date with `windlass migrate`"
        ),
        std::cmp::Ordering::Greater => newer(found, name),
    };
    Err(Error::new(ErrorKind::Schema, text))
}

/// What to say of a schema that a newer program has made.
pub(super) fn newer(found: i32, name: &str) -> String {
    let known = migrate::VERSION;
    format!(
        "the schema of database {name} is version {found}, this program knows versions up to \
         {known}; use a newer program"
    )
}

/// Why a look at a database led to nothing.
pub(super) enum Refusal {
    /// It was seen that it cannot be worked with.
    Error(Error),
    /// It could not be looked at.
    Fault(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Refusal::Fault(fault)
    }
}

/// The version of the schema, once everything else is found to be in order.
async fn found_version(pool: &Pool, target: &Target) -> Result<i32, Refusal> {
    let mut retries = pool.retries("connect");
    loop {
        match found_version_once(pool, target).await {
            Err(Refusal::Fault(fault)) if retries.again(&fault).await => continue,
            other => return other,
        }
    }
}

async fn found_version_once(pool: &Pool, target: &Target) -> Result<i32, Refusal> {
    let mut connection = pool.get().await?;
    let tx = connection.begin();
    tx.open().await?;
    let rows = tx.query(&CHECK_SERVER, &[]).await?;
    let row = rows.first().expect("a select without a from has one row");
    let name = target.name();
    let refuse = |kind, text| Err(Refusal::Error(Error::new(kind, text)));
    check_server(row.get("version"), row.get("encoding"), &name).map_err(Refusal::Error)?;
    if !row.get::<_, bool>("has_settings") {
        let text = format!(
            "database {name} is behind a pooler that keeps our settings from it, which is to be \
             said with `PostgresOptions::pooled` or `--pooled`"
        );
        return refuse(ErrorKind::Database, text);
    }
    check_writable(row.get("is_standby"), row.get("is_read_only"), &name)
        .map_err(Refusal::Error)?;
    if !row.get::<_, bool>("has_schema") {
        return Ok(0);
    }
    if let Some(lacks) = row.get::<_, Option<&str>>("lacks") {
        return Err(Refusal::Error(lacking(row.get("role"), &name, lacks)));
    }
    if !row.get::<_, bool>("has_migrations") {
        return Ok(0);
    }
    let rows = tx.query(&SCHEMA_VERSION, &[]).await?;
    Ok(rows.first().expect("an aggregate has one row").get("version"))
}

/// Refuses a server that is too old, or that cannot store every text.
pub(super) fn check_server(version: i32, encoding: &str, name: &str) -> Result<(), Error> {
    let refuse = |text| Err(Error::new(ErrorKind::Database, text));
    if version < SERVER_VERSION_MIN {
        let (found, wanted) = (version_text(version), SERVER_VERSION_MIN / 10_000);
        return refuse(format!(
            "database {name} is on PostgreSQL {found}, version {wanted} or newer is needed"
        ));
    }
    if encoding != "UTF8" {
        return refuse(format!("database {name} has the encoding {encoding}, UTF8 is needed"));
    }
    Ok(())
}

/// Refuses a database that nothing can be written to.
pub(super) fn check_writable(
    is_standby: bool,
    is_read_only: bool,
    name: &str,
) -> Result<(), Error> {
    let text = match (is_standby, is_read_only) {
        (true, _) => {
            format!("database {name} is on a standby, which only replays another server")
        }
        (false, true) => format!(
            "database {name} is read-only: default_transaction_read_only is on for it, for the \
             role or for the server"
        ),
        (false, false) => return Ok(()),
    };
    Err(Error::new(ErrorKind::Database, text))
}

/// What to say of a role without a right.
pub(super) fn lacking(role: &str, name: &str, right: &str) -> Error {
    let text = format!("role {role:?} lacks a right in database {name}: {right}");
    Error::new(ErrorKind::Database, text)
}

/// A version as people write it: 15.4, and 9.6.24 before PostgreSQL 10.
fn version_text(version: i32) -> String {
    match version {
        100_000.. => format!("{}.{}", version / 10_000, version % 10_000),
        _ => format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100),
    }
}

/// What to say of a database that could not be looked at.
pub(super) fn refused(target: &Target, fault: Fault) -> Error {
    let name = target.name();
    let error = match &fault {
        Fault::Answer(error) | Fault::Unsound { error, .. } => return error.clone().into(),
        Fault::Unavailable(text) => {
            let text = format!("database {name} cannot be reached: {text}");
            return Error::new(ErrorKind::Unavailable, text);
        }
        Fault::Unnamed(_) => return Error::new(ErrorKind::Corrupt, fault.to_string()),
        Fault::Database(error) => error,
    };
    let text = describe(error);
    if text.contains("unsupported startup parameter") {
        let text = format!(
            "database {name} is behind a pooler, which is to be said with \
             `PostgresOptions::pooled` or `--pooled`: {text}"
        );
        return Error::new(ErrorKind::Database, text);
    }
    match fault.remedy() {
        Remedy::Conflict | Remedy::Outage => {
            let text = format!("database {name} cannot be reached: {text}");
            Error::new(ErrorKind::Unavailable, text)
        }
        Remedy::Data | Remedy::Schema | Remedy::Permission | Remedy::Corrupt | Remedy::None => {
            let text = format!("database {name} refuses the connection: {text}");
            Error::new(ErrorKind::Database, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_refused_with_both_versions() {
        for (version, text) in [(130_022, "13.22"), (90_624, "9.6.24")] {
            let error = check_server(version, "UTF8", "host:5432/app").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Database);
            let wanted = format!("PostgreSQL {text}, version 14 or newer is needed");
            assert!(error.to_string().contains(&wanted), "{error}");
        }
        assert!(check_server(140_000, "UTF8", "host:5432/app").is_ok());
    }

    #[test]
    fn a_server_that_cannot_store_every_text_is_refused() {
        let error = check_server(150_000, "SQL_ASCII", "host:5432/app").unwrap_err();
        assert!(error.to_string().contains("the encoding SQL_ASCII"), "{error}");
    }
}
