//! A private PostgreSQL as a child process: the same SQL as in production, nothing to
//! set up by hand. For development, tests and single machines.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
//! use windlass::embedded::EmbeddedOptions;
//!
//! let postgres = EmbeddedOptions::new("./database").start().await?;
//! println!("{}", postgres.url());
//! postgres.stop().await?;
//! # Ok(()) }
//! ```
//!
//! The programs are those of an installed PostgreSQL, 14 or newer; none are bundled.
//! The server listens on a socket in a directory that only its account can enter, and
//! on no network address. Several processes may start the same directory: the first
//! starts the server, the others join it. If a process is killed, the server stays,
//! and the next start adopts it.
//!
//! What is not here: connections, schemas and migrations, upgrades of a cluster from
//! one major version to the next, replication, and Windows.

mod account;
mod answer;
mod binaries;
mod cluster;
mod directory;
mod install;
mod lock;
mod log;
mod pid_file;
mod server;

use std::path::{Path, PathBuf};

use binaries::Binaries;
use directory::Directory;
use lock::{StartLock, UseLock};
use server::{Server, Shutdown};

pub use directory::default_directory;
pub use install::Install;

use crate::{Error, ErrorKind};

/// How often a start looks for its directory anew because others have removed it: each
/// time one of them has failed or ended.
const PREPARE_TRIES_MAX: usize = 100;

/// How a private server is to be run: set it up, then [`start`](EmbeddedOptions::start).
#[derive(Clone, Debug)]
#[must_use = "nothing is started until `start` is awaited"]
pub struct EmbeddedOptions {
    directory: PathBuf,
    binaries: Option<PathBuf>,
    is_durable: bool,
    is_temporary: bool,
    install: Install,
    settings: Vec<(String, String)>,
}

impl EmbeddedOptions {
    /// A durable server in a directory, which is made if it is not there. It must be
    /// empty or hold such a server already; [`default_directory`] is the usual one.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        EmbeddedOptions {
            directory: directory.into(),
            binaries: None,
            is_durable: true,
            is_temporary: false,
            install: Install::default(),
            settings: Vec::new(),
        }
    }

    /// The directory of PostgreSQL's programs (`postgres`, `initdb`). If not said, it
    /// is `WINDLASS_PG_BIN` in the environment, or else the newest version in `PATH`,
    /// where `pg_config` says, or where distributions put it.
    pub fn binaries(mut self, directory: impl Into<PathBuf>) -> Self {
        self.binaries = Some(directory.into());
        self
    }

    /// Whether what was committed survives a crash of the machine; yes if not said.
    /// Without it tests are faster, and a crash of the machine may ruin the data.
    pub fn durable(mut self, is_durable: bool) -> Self {
        self.is_durable = is_durable;
        self
    }

    /// Whether the server is stopped when its handle is dropped, and the directory
    /// removed if this start made the cluster; no if not said. For tests.
    pub fn temporary(mut self, is_temporary: bool) -> Self {
        self.is_temporary = is_temporary;
        self
    }

    /// Whether the distribution's package is installed where no PostgreSQL is found;
    /// [`Install::IfRoot`] if not said.
    pub fn install(mut self, install: Install) -> Self {
        self.install = install;
        self
    }

    /// A setting of the server such as `work_mem`, over those of Windlass. A server
    /// that already runs keeps the settings it was started with.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Starts the server, or joins the one that already runs in the directory, and
    /// returns when it accepts connections. A first start takes about a second and a
    /// half, a later one a tenth of a second.
    ///
    /// A start that fails takes back what it made: the cluster, its directory, and the
    /// directories that lead to it. Only a server that takes too long is left at work.
    /// A dropped call goes on in the background: what it started is left to the next
    /// start, or stopped if it is temporary.
    ///
    /// # Errors
    ///
    /// `Argument` if the directory, the programs or a setting cannot be used,
    /// `Conflict` if the directory holds something else or a cluster of a version that
    /// is not installed, `Corrupt` if its cluster is damaged, and `Unavailable` if
    /// there is no PostgreSQL or the server does not come up.
    pub async fn start(self) -> Result<EmbeddedPostgres, Error> {
        blocking(move || self.start_blocking()).await
    }

    fn start_blocking(self) -> Result<EmbeddedPostgres, Error> {
        for (name, value) in &self.settings {
            cluster::check_setting(name, value)?;
        }
        let found = self.find_binaries()?;
        for _ in 0..PREPARE_TRIES_MAX {
            // After an installation, which may bring the account `postgres`.
            let directory = Directory::prepare(&self.directory)?;
            match StartLock::acquire(&directory) {
                Ok(Some(lock)) => return self.start_locked(&found, directory, &lock),
                // Another start that failed has taken back what it made.
                Ok(None) => continue,
                Err(error) => {
                    directory.unmake();
                    return Err(error);
                }
            }
        }
        let directory = &self.directory;
        let text = format!("directory {directory:?} is removed again and again by others");
        Err(Error::new(ErrorKind::Unavailable, text))
    }

    fn start_locked(
        &self,
        found: &[Binaries],
        directory: Directory,
        lock: &StartLock,
    ) -> Result<EmbeddedPostgres, Error> {
        let had_cluster = directory.data().exists();
        let started = self.start_in(found, &directory, lock);
        if started.is_err() {
            // Why it did not come up is the news, not that it cannot be stopped either.
            if self.is_temporary && !had_cluster {
                let _ = server::stop(&directory, Shutdown::Immediate);
            }
            if !had_cluster && !server::is_running(&directory) {
                directory.undo();
            }
        }
        let (server, users, mode) = started?;
        Ok(EmbeddedPostgres { server, directory, users: Some(users), mode })
    }

    fn start_in(
        &self,
        found: &[Binaries],
        directory: &Directory,
        lock: &StartLock,
    ) -> Result<(Server, UseLock, Mode), Error> {
        let users = UseLock::join(directory)?;
        let data = directory.data();
        if let Some(server) = Server::adopt(directory)? {
            let mode = Mode { is_adopted: true, is_temporary: self.is_temporary, is_made: false };
            return Ok((server, users, mode));
        }
        let major = cluster::major(&data)?;
        let binaries = Binaries::choose(found, &data, major)?;
        let is_made = major.is_none();
        if is_made {
            cluster::initialize(directory, &binaries, lock, self.is_durable)?;
        }
        let socket = directory.make_socket_directory()?;
        let settings = cluster::settings(&socket, self.is_durable, &self.settings);
        let server = Server::launch(directory, &binaries, &settings)?;
        let mode = Mode { is_adopted: false, is_temporary: self.is_temporary, is_made };
        Ok((server, users, mode))
    }

    /// All usable programs; gets some if there are none and it may.
    fn find_binaries(&self) -> Result<Vec<Binaries>, Error> {
        let found = Binaries::find(self.binaries.as_deref())?;
        if !found.is_empty() {
            return Ok(found);
        }
        install::install(self.install)?;
        let found = Binaries::find(None)?;
        if found.is_empty() { Err(install::none_found(self.install)) } else { Ok(found) }
    }
}

/// A private server that accepts connections, and this process's share in it.
///
/// Dropped, it leaves the server running for the next start, unless it is
/// [temporary](EmbeddedOptions::temporary): then dropping it stops the server, and
/// blocks for as long as that takes.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    server: Server,
    directory: Directory,
    /// `None` once it was given up.
    users: Option<UseLock>,
    mode: Mode,
}

/// How a handle came by its server, and what becomes of it.
#[derive(Clone, Copy, Debug)]
struct Mode {
    is_adopted: bool,
    is_temporary: bool,
    /// Whether this start made the cluster.
    is_made: bool,
}

impl EmbeddedPostgres {
    /// The address to connect to, for tokio-postgres, sqlx and libpq: a URL whose host
    /// is the directory of the socket.
    pub fn url(&self) -> String {
        let host = percent_encode(&self.server.socket.directory.to_string_lossy());
        let port = self.server.socket.port;
        format!("postgres://{}@{host}:{port}/{}", cluster::USER, cluster::DATABASE)
    }

    /// The directory of the server, with all links followed.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The file with what the server writes.
    pub fn log(&self) -> PathBuf {
        self.directory.log()
    }

    /// The socket on which the server listens.
    pub fn socket(&self) -> PathBuf {
        self.server.socket.path()
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.server.pid.as_raw_pid().unsigned_abs()
    }

    /// Returns whether the server process is alive. It looks at the process, so it costs no
    /// connection.
    pub fn is_running(&self) -> bool {
        server::is_running(&self.directory)
    }

    /// Whether the server ran already when this handle was made.
    pub fn is_adopted(&self) -> bool {
        self.mode.is_adopted
    }

    /// Whether another handle, here or in another process, uses the server just now.
    ///
    /// # Errors
    ///
    /// `Unavailable` if a start or a stop of another takes too long.
    pub async fn is_shared(&self) -> Result<bool, Error> {
        let Some(users) = &self.users else {
            return Ok(false);
        };
        let (users, directory) = (users.share()?, self.directory.clone());
        blocking(move || {
            let _lock = StartLock::acquire(&directory)?;
            let is_last = users.leave()?;
            users.join_again()?;
            Ok(!is_last)
        })
        .await
    }

    /// Stops the server, unless another handle, here or in another process, still
    /// uses it: the last one stops it. Sessions are cut, and what was committed is
    /// written, so that the next start needs no recovery.
    ///
    /// A dropped call goes on in the background.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the server does not end in time.
    pub async fn stop(mut self) -> Result<(), Error> {
        blocking(move || self.stop_blocking()).await
    }

    fn stop_blocking(&mut self) -> Result<(), Error> {
        let Some(users) = self.users.take() else {
            return Ok(());
        };
        let Some(lock) = StartLock::acquire(&self.directory)? else {
            return Ok(());
        };
        if !users.leave()? {
            return Ok(());
        }
        let is_removed = self.mode.is_temporary && self.mode.is_made;
        let shutdown = if is_removed { Shutdown::Immediate } else { Shutdown::Fast };
        server::stop(&self.directory, shutdown)?;
        if is_removed {
            self.directory.remove().map_err(|error| {
                let text = format!("cannot remove {:?}: {error}", self.directory.path());
                Error::new(ErrorKind::Unavailable, text)
            })?;
        }
        drop(users);
        drop(lock);
        Ok(())
    }
}

impl Drop for EmbeddedPostgres {
    fn drop(&mut self) {
        if !self.mode.is_temporary {
            return;
        }
        if let Err(error) = self.stop_blocking() {
            tracing::warn!(%error, "a temporary server was not stopped");
        }
    }
}

/// Runs something that blocks on a thread where it may.
async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(act).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => {
                let text = "the runtime was shut down before the server was looked at";
                Err(Error::new(ErrorKind::Unavailable, text))
            }
        },
    }
}

/// Writes a text so that it can be the host of a URL.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_the_host_of_a_url() {
        assert_eq!(percent_encode("/var/lib/a b-1_é"), "%2Fvar%2Flib%2Fa%20b-1_%C3%A9");
    }
}
