//! What the environment says a program talks to.

use windlass_core::Secret;

use crate::engine::Windlass;
use crate::error::Error;
#[cfg(not(all(feature = "remote", feature = "postgres")))]
use crate::error::ErrorKind;
use crate::secrets;
use crate::store::sealed::Keyring;

/// The variables that are read, by programs as by the command line.
const SERVER_VARIABLE: &str = "WINDLASS_SERVER";
const DATABASE_VARIABLE: &str = "DATABASE_URL";

impl Windlass {
    /// Connects as the environment says. Returns `None` if neither variable is set.
    ///
    /// `WINDLASS_SERVER` (feature `remote`) names a server; `remote::RemoteOptions::from_env` reads
    /// its credentials. `DATABASE_URL` (feature `postgres`) names a database with the schema, and
    /// `DATABASE_URL_FILE` a file that holds that address. If both are set, `WINDLASS_SERVER` is used,
    /// unless this program was built without `remote`. Values are [sealed](Windlass::sealed) if there
    /// are [keys](Keyring::from_env).
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
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if a variable is not UTF-8 or names a file that holds no address, or if this program was built without the feature; otherwise as
    /// [`Keyring::from_env`], `Windlass::connect_server` and `Windlass::connect`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn from_env() -> Result<Option<Self>, Error> {
        let keys = Keyring::from_env()?;
        let server = secrets::variable(SERVER_VARIABLE)?.map(Secret::from);
        let windlass = match choose(server, secrets::from_env(DATABASE_VARIABLE)?) {
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

/// Prefers the server, as the command line does. A program that cannot talk to a server uses the
/// database, so that one environment suits every program.
fn choose(server: Option<Secret>, database: Option<Secret>) -> Option<Target> {
    match (server, database) {
        (Some(_), Some(url)) if !cfg!(feature = "remote") => Some(Target::Database(url)),
        (Some(url), _) => Some(Target::Server(url)),
        (None, Some(url)) => Some(Target::Database(url)),
        (None, None) => None,
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
    fn the_server_is_preferred_to_the_database() {
        let url = || Some(Secret::new("a"));
        assert!(choose(None, None).is_none());
        assert!(matches!(choose(url(), None), Some(Target::Server(url)) if url.expose() == "a"));
        assert!(matches!(choose(None, url()), Some(Target::Database(url)) if url.expose() == "a"));
        assert_eq!(format!("{:?}", choose(None, url())), "Some(Database(***))");
        let both = choose(url(), Some(Secret::new("b")));
        match cfg!(feature = "remote") {
            true => assert!(matches!(both, Some(Target::Server(url)) if url.expose() == "a")),
            false => assert!(matches!(both, Some(Target::Database(url)) if url.expose() == "b")),
        }
    }
}
