//! The directory of the demo: who may use it, and how it is removed.
//!
//! ```text
//! DIR           the private PostgreSQL
//! DIR.lock      held by the demo that runs there; says that DIR is a demo's
//! DIR.removed   what an earlier demo was about to remove
//! ```
//!
//! The lock lies beside the directory, because the directory comes and goes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context;
use windlass::ErrorKind;
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres, default_directory};

use crate::server::ServerArguments;
use crate::text::coded;

/// The first word of a lock file beside a directory that a demo has made.
const MARK: &str = "windlass-demo";

/// The right to use a directory for a demo.
pub(super) struct Place {
    directory: PathBuf,
    lock: File,
    lock_path: PathBuf,
    /// The directories that were made to lead there, the innermost first.
    made: Vec<PathBuf>,
    programs: ServerArguments,
    /// Whether a demo was cut off here.
    pub(super) is_left_over: bool,
}

impl Place {
    /// Takes a directory that is not there, empty, or an earlier demo's.
    pub(super) fn take(
        directory: Option<&Path>,
        programs: ServerArguments,
    ) -> anyhow::Result<Self> {
        let directory = match directory {
            Some(directory) => std::path::absolute(directory)
                .map_err(|error| refuse(directory, "be named", &error))?,
            None => default_directory()
                .context("a directory can be named with --data")?
                .with_file_name("windlass-demo"),
        };
        let lock_path = beside(&directory, "lock")?;
        let parent = directory.parent().unwrap_or(&directory);
        let made = make(parent).map_err(|error| refuse(parent, "be made", &error))?;
        let lock = match lock(&lock_path, &directory) {
            Ok(lock) => lock,
            Err(error) => {
                unmake(&made);
                return Err(error);
            }
        };
        let is_left_over = false;
        let mut place = Place { directory, lock, lock_path, made, programs, is_left_over };
        match place.mark() {
            Ok(is_left_over) => place.is_left_over = is_left_over,
            Err(refusal) => {
                if !refusal.is_marked {
                    // Best effort: why the place cannot be taken is what matters.
                    let _ = place.leave();
                }
                return Err(refusal.error);
            }
        }
        place.remove_doomed()?;
        Ok(place)
    }

    /// Marks the directory as a demo's; says whether there is something in it.
    fn mark(&mut self) -> Result<bool, Refusal> {
        let (directory, lock_path) = (&self.directory, &self.lock_path);
        let mut is_marked = false;
        let mut mark = || {
            let broken = |error: io::Error| refuse(lock_path, "be used", &error);
            let mut mark = String::new();
            self.lock.read_to_string(&mut mark).map_err(broken)?;
            is_marked = mark.split(' ').next() == Some(MARK);
            let is_empty =
                is_empty(directory).map_err(|error| refuse(directory, "be read", &error))?;
            if !is_empty && !is_marked {
                let text = format!(
                    "directory {directory:?} is in use, and not by a demo; a demo removes its \
                     directory at the end: choose another with --data"
                );
                return Err(coded(ErrorKind::Conflict, text));
            }
            self.lock.set_len(0).map_err(broken)?;
            writeln!(self.lock, "{MARK} {}", std::process::id()).map_err(broken)?;
            Ok(!is_empty)
        };
        let marked = mark();
        marked.map_err(|error| Refusal { error, is_marked })
    }

    /// How to run the demo's server.
    pub(super) fn server(&self) -> EmbeddedOptions {
        self.programs.apply(EmbeddedOptions::new(&self.directory))
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Forgets what an earlier demo left.
    pub(super) async fn forget(&mut self) -> anyhow::Result<()> {
        if !self.is_left_over {
            return Ok(());
        }
        match self.server().start().await {
            Ok(server) => {
                self.check_is_alone(&server).await?;
                self.stop(server).await?;
            }
            // It is to be thrown away, so it need not be sound.
            Err(_) => self.remove()?,
        }
        self.is_left_over = false;
        Ok(())
    }

    /// Refuses a server that another program uses, such as `windlass dev`: the demo would
    /// be in its way, and could not remove the directory.
    pub(super) async fn check_is_alone(&self, server: &EmbeddedPostgres) -> anyhow::Result<()> {
        if !server.is_shared().await? {
            return Ok(());
        }
        let directory = &self.directory;
        let text = format!(
            "the server in {directory:?} is used by another program, such as `windlass dev`; \
             end that first, or choose another directory with --data"
        );
        Err(coded(ErrorKind::Conflict, text))
    }

    /// Stops the server and removes the directory, unless others use it: then it is theirs.
    /// Says whether it was removed.
    pub(super) async fn stop(&self, server: EmbeddedPostgres) -> anyhow::Result<bool> {
        let socket = server.socket();
        server.stop().await?;
        if UnixStream::connect(&socket).is_ok() {
            return Ok(false);
        }
        let sockets = socket.parent().unwrap_or(&socket);
        if !sockets.starts_with(self.directory.canonicalize()?) {
            // The path was too long for a socket inside.
            std::fs::remove_dir_all(sockets)?;
        }
        self.remove()?;
        Ok(true)
    }

    /// Removes the directory, in which no server runs. It changes its name first: half
    /// a directory would be no database, and no place for one.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        let doomed = self.doomed()?;
        match std::fs::rename(&self.directory, &doomed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(refuse(&self.directory, "be removed", &error))
            }
            Ok(()) | Err(_) => self.remove_doomed(),
        }
    }

    fn doomed(&self) -> anyhow::Result<PathBuf> {
        beside(&self.directory, "removed")
    }

    fn remove_doomed(&self) -> anyhow::Result<()> {
        let doomed = self.doomed()?;
        match std::fs::remove_dir_all(&doomed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(refuse(&doomed, "be removed", &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Gives up the place, unless there is something in it. An empty directory was there
    /// before: a start that fails takes back what it made.
    pub(super) fn leave_if_empty(self) {
        if is_empty(&self.directory).unwrap_or(false) {
            // Best effort: why there is nothing in it is what matters.
            let _ = self.leave();
        }
    }

    /// Gives up the place, of which nothing is left but the lock.
    pub(super) fn leave(self) -> anyhow::Result<()> {
        std::fs::remove_file(&self.lock_path)?;
        drop(self.lock);
        unmake(&self.made);
        Ok(())
    }
}

/// Why a place cannot be taken.
struct Refusal {
    error: anyhow::Error,
    /// Whether it is marked as a demo's nevertheless.
    is_marked: bool,
}

fn refuse(path: &Path, what: &str, error: &io::Error) -> anyhow::Error {
    coded(ErrorKind::Argument, format!("{path:?} cannot {what}: {error}"))
}

/// Makes a directory and what leads to it; answers what was not there, the innermost
/// first. If it fails, nothing was made.
fn make(path: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<&Path> = path.ancestors().take_while(|step| !step.exists()).collect();
    let mut made = Vec::new();
    for step in missing.into_iter().rev() {
        match std::fs::create_dir(step) {
            Ok(()) => made.insert(0, step.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                unmake(&made);
                return Err(error);
            }
        }
    }
    Ok(made)
}

/// Removes directories that were made, up to the first that others have begun to use.
fn unmake(made: &[PathBuf]) {
    let _ = made.iter().try_for_each(std::fs::remove_dir);
}

/// The file with another ending in the directory's place.
fn beside(directory: &Path, ending: &str) -> anyhow::Result<PathBuf> {
    let name = directory.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        let text = format!("{directory:?} cannot be a demo's directory: its name is not UTF-8");
        coded(ErrorKind::Argument, text)
    })?;
    Ok(directory.with_file_name(format!("{name}.{ending}")))
}

fn is_empty(directory: &Path) -> io::Result<bool> {
    match std::fs::read_dir(directory) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Locks the file, which must still be there afterwards: whoever leaves removes it.
fn lock(path: &Path, directory: &Path) -> anyhow::Result<File> {
    loop {
        let broken = |error: io::Error| refuse(path, "be locked", &error);
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = opened.map_err(broken)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut mark = String::new();
                file.read_to_string(&mut mark).map_err(broken)?;
                let pid = mark.trim().rsplit(' ').next().filter(|pid| pid.parse::<u32>().is_ok());
                let who = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
                let text = format!(
                    "another demo{who} is running in {directory:?}; choose another with --data"
                );
                return Err(coded(ErrorKind::Conflict, text));
            }
            Err(TryLockError::Error(error)) => return Err(broken(error)),
        }
        let own = file.metadata().map_err(broken)?;
        let is_same = |it: std::fs::Metadata| (it.dev(), it.ino()) == (own.dev(), own.ino());
        if std::fs::metadata(path).is_ok_and(is_same) {
            return Ok(file);
        }
    }
}
