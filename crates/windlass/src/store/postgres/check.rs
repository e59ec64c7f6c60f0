//! Whether a database is one that can be worked with, and what to say if it is not.

use std::cmp::Ordering;

use tokio_postgres::Row;

use super::address::Target;
use super::fault::{Fault, Remedy, describe};
use super::migrate;
use super::pool::{Pool, sql};
use crate::{Error, ErrorKind};

/// The oldest server, as it counts its versions itself.
const SERVER_VERSION_MIN: i32 = 140_000;

/// The oldest server whose views can read with the rights of the role that queries them.
const ROW_SECURITY_VERSION_MIN: i32 = 150_000;

sql!(CHECK_SERVER, "check_server.sql", []);
sql!(SCHEMA_VERSION, "schema_version.sql", []);

/// Connects once and looks.
pub(super) async fn check(pool: &Pool, target: &Target) -> Result<(), Error> {
    let found = match found_version(pool, target).await {
        Ok(found) => found,
        Err(Refusal::Error(error)) => return Err(error),
        Err(Refusal::Fault(fault)) => return Err(refused(target, fault)),
    };
    found.check(&target.name())
}

/// What the list of migrations says of a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaVersion {
    /// The newest migration that was applied; 0 if there is none.
    pub(super) version: i32,
    /// Programs that know this version or a newer one may use the schema.
    pub(super) works_from: i32,
}

impl SchemaVersion {
    /// Reads the row of `schema_version.sql`.
    pub(super) fn read(row: &Row) -> Self {
        SchemaVersion { version: row.get("version"), works_from: row.get("works_from") }
    }

    /// Whether a newer program has made it.
    pub(super) fn is_newer(self) -> bool {
        self.version > migrate::VERSION
    }

    /// Refuses an older schema, and a newer one that this program may not use.
    pub(super) fn check(self, name: &str) -> Result<(), Error> {
        let (found, known) = (self.version, migrate::VERSION);
        let text = match found.cmp(&known) {
            Ordering::Equal => return Ok(()),
            Ordering::Less if found == 0 => format!(
                "database {name} has no schema of Windlass; make it with `windlass migrate`"
            ),
            Ordering::Less => format!(
                "the schema of database {name} is version {found}, this program needs version \
                 {known}; bring it up to date with `windlass migrate`"
            ),
            Ordering::Greater if self.works_from <= known => return Ok(()),
            Ordering::Greater => format!(
                "the schema of database {name} is version {found}, which works with programs that \
                 know version {} or newer, this program knows versions up to {known}; use a newer \
                 program",
                self.works_from
            ),
        };
        Err(Error::new(ErrorKind::Schema, text))
    }
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
async fn found_version(pool: &Pool, target: &Target) -> Result<SchemaVersion, Refusal> {
    let mut retries = pool.retries("connect");
    loop {
        match found_version_once(pool, target).await {
            Err(Refusal::Fault(fault)) if retries.again(&fault).await => continue,
            other => return other,
        }
    }
}

async fn found_version_once(pool: &Pool, target: &Target) -> Result<SchemaVersion, Refusal> {
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
        return Ok(SchemaVersion::default());
    }
    if let Some(lacks) = row.get::<_, Option<&str>>("lacks") {
        return Err(Refusal::Error(lacking(row.get("role"), &name, lacks)));
    }
    if !row.get::<_, bool>("has_migrations") {
        return Ok(SchemaVersion::default());
    }
    let rows = tx.query(&SCHEMA_VERSION, &[]).await?;
    Ok(SchemaVersion::read(rows.first().expect("an aggregate has one row")))
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

/// Refuses to restrict a role with row-level security on a server that is too old for it: views
/// read with the rights of their owner there.
pub(super) fn check_row_security(version: i32, role: &str, name: &str) -> Result<(), Error> {
    if version >= ROW_SECURITY_VERSION_MIN {
        return Ok(());
    }
    let (found, wanted) = (version_text(version), ROW_SECURITY_VERSION_MIN / 10_000);
    let text = format!(
        "database {name} is on PostgreSQL {found}, and role {role:?} can be restricted to one \
         tenant from version {wanted}: upgrade PostgreSQL, or set no API role (`--api-role`)"
    );
    Err(Error::new(ErrorKind::Database, text))
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
        Fault::Unreachable(text) => return Error::new(ErrorKind::Unavailable, text.clone()),
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
    fn row_security_needs_a_version_that_is_named_with_the_remedy() {
        let check = |version| check_row_security(version, "windlass_api", "host:5432/app");
        assert!(check(150_000).is_ok() && check(180_001).is_ok());
        let error = check(140_019).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Database);
        let expected = "database host:5432/app is on PostgreSQL 14.19, and role \"windlass_api\" can \
            be restricted to one tenant from version 15: upgrade PostgreSQL, or set no API role \
            (`--api-role`)";
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn a_schema_is_worked_with_from_the_version_that_is_known_as_far_as_it_allows() {
        let known = migrate::VERSION;
        let check = |version, works_from| {
            let found = SchemaVersion { version, works_from };
            found.check("host:5432/app").map_err(|error| error.message().to_owned())
        };
        assert_eq!(check(known, known), Ok(()));
        assert_eq!(check(known + 1, known), Ok(()), "it lets this program work on");
        assert_eq!(check(known + 7, 1), Ok(()), "and so does one that is newer by far");
        let newer = check(known + 2, known + 1).unwrap_err();
        let versions = [
            format!("is version {}", known + 2),
            format!("version {} or newer", known + 1),
            format!("up to {known};"),
        ];
        assert!(versions.iter().all(|it| newer.contains(it)), "{newer}");
        let older = check(known - 1, 1).unwrap_err();
        assert!(older.contains("`windlass migrate`"), "{older}");
        let none = check(0, 0).unwrap_err();
        assert!(none.contains("has no schema of Windlass"), "{none}");
    }

    #[test]
    fn a_server_that_cannot_store_every_text_is_refused() {
        let error = check_server(150_000, "SQL_ASCII", "host:5432/app").unwrap_err();
        assert!(error.to_string().contains("the encoding SQL_ASCII"), "{error}");
    }
}
