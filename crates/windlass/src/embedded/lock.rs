//! Who may start and stop a cluster, and who still uses it.
//!
//! Both are locks of the kernel on files in the cluster's directory: they end with
//! the process that holds them, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::account::Account;
use super::directory::Directory;
use crate::{Error, ErrorKind};

/// How long a start waits for another one: time for its `initdb` and its server.
const LOCK_TIME_MAX: Duration = Duration::from_secs(90);

/// How often a held lock is tried again.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// Opens a file of a cluster for writing, and makes it if need be. Never follows a
/// link: the directory belongs to the server's account, and this process may be root.
pub(super) fn open_own(path: &Path, account: &Account) -> Result<File, Error> {
    open(path, account).map_err(|error| cannot_open(path, &error))
}

fn open(path: &Path, account: &Account) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    account.give(&file)?;
    Ok(file)
}

fn cannot_open(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Argument, format!("cannot open {path:?}: {error}"))
}

/// The right to start or stop the server; one holder at a time.
#[derive(Debug)]
pub(super) struct StartLock(File);

impl StartLock {
    /// Waits for the lock, up to [`LOCK_TIME_MAX`]. `None` if the directory was removed
    /// meanwhile, with the file: the lock of a file that nobody finds keeps nobody out.
    pub(super) fn acquire(directory: &Directory) -> Result<Option<Self>, Error> {
        let path = directory.lock();
        let file = match open(&path, directory.account()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| cannot_open(&path, &error))?,
        };
        let began = Instant::now();
        while !try_lock(&file, &path)? {
            if began.elapsed() > LOCK_TIME_MAX {
                let text = format!(
                    "another start or stop has held {path:?} for more than {LOCK_TIME_MAX:?}"
                );
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
            std::thread::sleep(LOCK_POLL);
        }
        let own = file.metadata().map_err(|error| refuse(&path, &error))?;
        let is_own = |it: std::fs::Metadata| (it.dev(), it.ino()) == (own.dev(), own.ino());
        let is_there = std::fs::symlink_metadata(&path).is_ok_and(is_own);
        Ok(is_there.then_some(StartLock(file)))
    }

    /// The same lock for a child: it stays held until both have ended. So the next
    /// start waits for an `initdb` that outlives its parent.
    pub(super) fn share(&self) -> Result<File, Error> {
        self.0.try_clone().map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot share the lock: {error}"))
        })
    }
}

/// A sign that someone uses the server. Any number may hold it.
#[derive(Debug)]
pub(super) struct UseLock {
    file: File,
    path: PathBuf,
}

impl UseLock {
    /// Joins the users. To be called with the [`StartLock`] held, so that nobody
    /// finds the server unused in between.
    pub(super) fn join(directory: &Directory) -> Result<Self, Error> {
        let path = directory.users();
        let file = open_own(&path, directory.account())?;
        file.lock_shared().map_err(|error| refuse(&path, &error))?;
        Ok(UseLock { file, path })
    }

    /// The same sign once more; both are given up with [`UseLock::leave`].
    pub(super) fn share(&self) -> Result<Self, Error> {
        let file = self.file.try_clone().map_err(|error| refuse(&self.path, &error))?;
        Ok(UseLock { file, path: self.path.clone() })
    }

    /// Joins the users again. To be called with the [`StartLock`] held since it left.
    pub(super) fn join_again(&self) -> Result<(), Error> {
        self.file.lock_shared().map_err(|error| refuse(&self.path, &error))
    }

    /// Leaves, and says whether that was the last user. To be called with the
    /// [`StartLock`] held, or the answer may be outdated.
    pub(super) fn leave(&self) -> Result<bool, Error> {
        self.file.unlock().map_err(|error| refuse(&self.path, &error))?;
        try_lock(&self.file, &self.path)
    }
}

fn try_lock(file: &File, path: &Path) -> Result<bool, Error> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(refuse(path, &error)),
    }
}

fn refuse(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot lock {path:?}: {error}"))
}
