//! What the environment says a program talks to.

use crate::engine::Windlass;
use crate::error::{Error, ErrorKind};
use crate::store::sealed::Keyring;

/// The variables that are read, by programs as by the command line.
const SERVER_VARIABLE: &str = "WINDLASS_SERVER";
const DATABASE_VARIABLE: &str = "DATABASE_URL";

impl Windlass {
    /// An engine where the environment says: behind the server of `WINDLASS_SERVER` (feature
    /// `remote`), or on the database of `DATABASE_URL` (feature `postgres`), whose schema is
    /// there. None if neither is set, or only to nothing. Its values are [sealed](Windlass::sealed)
    /// if there are [keys](Keyring::from_env) for that.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
    /// use windlass::Windlass;
    ///
    /// let windlass = Windlass::from_env().await?.unwrap_or_else(Windlass::memory);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if both are set, if one is not UTF-8, or if this program was built
    /// without the feature; otherwise as [`Keyring::from_env`], `Windlass::connect_server` and
    /// `Windlass::connect`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn from_env() -> Result<Option<Self>, Error> {
        let keys = Keyring::from_env()?;
        let windlass = match choose(variable(SERVER_VARIABLE)?, variable(DATABASE_VARIABLE)?)? {
            Some(Target::Server(url)) => through_server(&url)?,
            Some(Target::Database(url)) => on_database(&url).await?,
            None => return Ok(None),
        };
        Ok(Some(match keys {
            Some(keys) => windlass.sealed(keys),
            None => windlass,
        }))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Target {
    Server(String),
    Database(String),
}

fn variable(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Error::new(ErrorKind::Argument, format!("the variable {name} is not UTF-8")))
        }
    }
}

fn choose(server: Option<String>, database: Option<String>) -> Result<Option<Target>, Error> {
    let said = |value: Option<String>| value.filter(|value| !value.is_empty());
    match (said(server), said(database)) {
        (Some(_), Some(_)) => {
            let text = format!(
                "{SERVER_VARIABLE} and {DATABASE_VARIABLE} name both a server and a database; \
                 leave one of them out"
            );
            Err(Error::new(ErrorKind::Argument, text))
        }
        (Some(url), None) => Ok(Some(Target::Server(url))),
        (None, Some(url)) => Ok(Some(Target::Database(url))),
        (None, None) => Ok(None),
    }
}

#[cfg(feature = "remote")]
fn through_server(url: &str) -> Result<Windlass, Error> {
    Windlass::connect_server(url)
}

#[cfg(not(feature = "remote"))]
fn through_server(_: &str) -> Result<Windlass, Error> {
    Err(missing(SERVER_VARIABLE, "remote"))
}

#[cfg(feature = "postgres")]
async fn on_database(url: &str) -> Result<Windlass, Error> {
    Windlass::connect(url).await
}

#[cfg(not(feature = "postgres"))]
async fn on_database(_: &str) -> Result<Windlass, Error> {
    Err(missing(DATABASE_VARIABLE, "postgres"))
}

#[cfg(not(all(feature = "remote", feature = "postgres")))]
fn missing(variable: &str, feature: &str) -> Error {
    let text = format!(
        "{variable} is set, and this program was built without the feature {feature:?} of windlass"
    );
    Error::new(ErrorKind::Argument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_two_is_talked_to_and_never_both() {
        let (url, nothing) = (|| Some("a".to_owned()), || Some(String::new()));
        let of = |server, database| choose(server, database).expect("it is clear");
        assert_eq!(of(None, None), None);
        assert_eq!(of(nothing(), nothing()), None);
        assert_eq!(of(url(), None), Some(Target::Server("a".to_owned())));
        assert_eq!(of(nothing(), url()), Some(Target::Database("a".to_owned())));
        let error = choose(url(), url()).expect_err("it is not clear");
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().contains("WINDLASS_SERVER and DATABASE_URL"), "{error}");
    }
}
