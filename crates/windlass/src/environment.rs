//! What the environment says a program talks to.

use windlass_core::Secret;

use crate::engine::Windlass;
use crate::error::{Error, ErrorKind};
use crate::secrets;
use crate::store::sealed::Keyring;

/// The variables that are read, by programs as by the command line.
const SERVER_VARIABLE: &str = "WINDLASS_SERVER";
const DATABASE_VARIABLE: &str = "DATABASE_URL";

impl Windlass {
    /// An engine where the environment says: behind the server of `WINDLASS_SERVER` (feature
    /// `remote`), with what else the environment says of how to reach it
    /// (`remote::RemoteOptions::from_env`), or on the database of `DATABASE_URL` (feature
    /// `postgres`), whose schema is there. None if neither is set, or only to nothing.
    /// `DATABASE_URL_FILE` names a file that holds the address of the database, so that no password
    /// need be in the environment. Its values are [sealed](Windlass::sealed) if there are
    /// [keys](Keyring::from_env) for that.
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
    /// [`ErrorKind::Argument`] if both are set, if one is not UTF-8 or names a file that holds no
    /// address, or if this program was built without the feature; otherwise as
    /// [`Keyring::from_env`], `Windlass::connect_server` and `Windlass::connect`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn from_env() -> Result<Option<Self>, Error> {
        let keys = Keyring::from_env()?;
        let server = secrets::variable(SERVER_VARIABLE)?.map(Secret::from);
        let windlass = match choose(server, secrets::from_env(DATABASE_VARIABLE)?)? {
            Some(Target::Server(url)) => through_server(url.expose())?,
            Some(Target::Database(url)) => on_database(url.expose()).await?,
            None => return Ok(None),
        };
        Ok(Some(match keys {
            Some(keys) => windlass.sealed(keys),
            None => windlass,
        }))
    }
}

/// Addresses, which may hold passwords.
#[derive(Debug)]
enum Target {
    Server(Secret),
    Database(Secret),
}

fn choose(server: Option<Secret>, database: Option<Secret>) -> Result<Option<Target>, Error> {
    match (server, database) {
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
    Windlass::connect_server(crate::remote::RemoteOptions::from_env(url)?)
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
        let url = || Some(Secret::new("a"));
        let of = |server, database| choose(server, database).expect("it is clear");
        assert!(of(None, None).is_none());
        assert!(matches!(of(url(), None), Some(Target::Server(url)) if url.expose() == "a"));
        assert!(matches!(of(None, url()), Some(Target::Database(url)) if url.expose() == "a"));
        assert_eq!(format!("{:?}", of(None, url())), "Some(Database(***))");
        let error = choose(url(), url()).expect_err("it is not clear");
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().contains("WINDLASS_SERVER and DATABASE_URL"), "{error}");
    }
}
