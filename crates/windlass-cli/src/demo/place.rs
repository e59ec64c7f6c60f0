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

use anyhow::{Context, bail};
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres, default_directory};

/// The first word of a lock file beside a directory that a demo has made.
const MARK: &str = "windlass-demo";

/// The right to use a directory for a demo.
pub(super) struct Place {
    directory: PathBuf,
    lock: File,
    lock_path: PathBuf,
    /// Whether a demo was cut off here.
    pub(super) is_left_over: bool,
}

impl Place {
    /// Takes a directory that is not there, empty, or an earlier demo's.
    pub(super) fn take(directory: Option<&Path>) -> anyhow::Result<Self> {
        let directory = match directory {
            Some(directory) => std::path::absolute(directory)?,
            None => default_directory()
                .context("a directory can be named with --data")?
                .with_file_name("windlass-demo"),
        };
        let lock_path = beside(&directory, "lock")?;
        if let Some(parent) = directory.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("directory {parent:?} cannot be made"))?;
        }
        let mut lock = lock(&lock_path, &directory)?;
        let mut mark = String::new();
        lock.read_to_string(&mut mark)?;
        let is_marked = mark.split(' ').next() == Some(MARK);
        let is_empty = is_empty(&directory)
            .with_context(|| format!("directory {directory:?} cannot be read"))?;
        if !is_empty && !is_marked {
            std::fs::remove_file(&lock_path)?;
            bail!(
                "directory {directory:?} is in use, and not by a demo; a demo removes its \
                 directory at the end: choose another with --data"
            );
        }
        lock.set_len(0)?;
        writeln!(lock, "{MARK} {}", std::process::id())?;
        let place = Place { directory, lock, lock_path, is_left_over: !is_empty };
        place.remove_doomed()?;
        Ok(place)
    }

    /// How to run the demo's server.
    pub(super) fn server(&self) -> EmbeddedOptions {
        EmbeddedOptions::new(&self.directory)
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
            Ok(server) => self.stop(server).await?,
            // It is to be thrown away, so it need not be sound.
            Err(_) => self.remove()?,
        }
        self.is_left_over = false;
        Ok(())
    }

    /// Stops the server and removes the directory.
    pub(super) async fn stop(&self, server: EmbeddedPostgres) -> anyhow::Result<()> {
        let socket = server.socket();
        server.stop().await?;
        if UnixStream::connect(&socket).is_ok() {
            bail!("the server in {:?} is used by others; it was left as it is", self.directory);
        }
        let sockets = socket.parent().unwrap_or(&socket);
        if !sockets.starts_with(self.directory.canonicalize()?) {
            // The path was too long for a socket inside.
            std::fs::remove_dir_all(sockets)?;
        }
        self.remove()
    }

    /// Removes the directory, in which no server runs. It changes its name first: half
    /// a directory would be no database, and no place for one.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        let doomed = self.doomed()?;
        match std::fs::rename(&self.directory, &doomed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let directory = &self.directory;
                Err(error).with_context(|| format!("directory {directory:?} cannot be removed"))
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
                Err(error).with_context(|| format!("directory {doomed:?} cannot be removed"))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Gives up the place, unless there is something in it.
    pub(super) fn leave_if_empty(self) {
        if is_empty(&self.directory).unwrap_or(false) {
            // Best effort: why there is nothing in it is what matters.
            let _ = std::fs::remove_dir(&self.directory);
            let _ = self.leave();
        }
    }

    /// Gives up the place, of which nothing is left but the lock.
    pub(super) fn leave(self) -> anyhow::Result<()> {
        std::fs::remove_file(&self.lock_path)?;
        drop(self.lock);
        Ok(())
    }
}

/// The file with another ending in the directory's place.
fn beside(directory: &Path, ending: &str) -> anyhow::Result<PathBuf> {
    let name = directory.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{directory:?} cannot be a demo's directory"))?;
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
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = opened.with_context(|| format!("{path:?} cannot be opened"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut mark = String::new();
                file.read_to_string(&mut mark)?;
                let pid = mark.trim().rsplit(' ').next().filter(|pid| pid.parse::<u32>().is_ok());
                let who = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
                bail!("another demo{who} is running in {directory:?}; choose another with --data");
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("{path:?} cannot be locked"));
            }
        }
        let own = file.metadata()?;
        let is_same = |it: std::fs::Metadata| (it.dev(), it.ino()) == (own.dev(), own.ino());
        if std::fs::metadata(path).is_ok_and(is_same) {
            return Ok(file);
        }
    }
}
