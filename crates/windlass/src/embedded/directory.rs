//! The directory of a cluster: what is where, whose it is, and who can reach it.
//!
//! ```text
//! DIR/              mode 0700, of the server's account
//!   windlass.lock   held by whoever starts or stops the server
//!   windlass.users  held by whoever uses it
//!   server.log      what the server writes
//!   socket/         where it listens, if the path is short enough
//!   data/           the cluster
//!   data.tmp/       a cluster that initdb has not finished
//! ```

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::account::Account;
use crate::{Error, ErrorKind};

/// The longest path of a socket, in bytes. The kernels' limits are 104 (BSD, macOS)
/// and 108 (Linux) with the final zero.
const SOCKET_PATH_BYTES_MAX: usize = 99;

/// The port in the socket's name. Nobody else's: the directory is private.
pub(super) const PORT: u16 = 5432;

const LOCK: &str = "windlass.lock";

/// The directory of a cluster and the account that owns it and runs its server.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    /// Its one true name, without links.
    path: PathBuf,
    account: Account,
    /// The directories that were made for it, the innermost first.
    made: Vec<PathBuf>,
    /// Whether there was nothing in it before.
    was_empty: bool,
}

/// The directory that commands use if they are told none: `/var/lib/windlass` for
/// root, whose home other accounts cannot enter, else `windlass` in the user's data
/// directory (`$XDG_DATA_HOME`, or `~/.local/share`).
///
/// # Errors
///
/// `Argument` if the environment names neither a data directory nor a home.
pub fn default_directory() -> Result<PathBuf, Error> {
    if super::account::is_root() {
        return Ok(PathBuf::from("/var/lib/windlass"));
    }
    let absolute = |name| {
        std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
    };
    let home = || absolute("HOME").map(|home| home.join(".local/share"));
    let parent = absolute("XDG_DATA_HOME").or_else(home).ok_or_else(|| {
        let text = "neither XDG_DATA_HOME nor HOME names a directory; choose one for the database";
        Error::new(ErrorKind::Argument, text)
    })?;
    Ok(parent.join("windlass"))
}

impl Directory {
    /// Makes the directory if need be, gives it to the account that is to run the
    /// server, and checks that this account can reach it. Whatever is refused is left
    /// as it was.
    pub(super) fn prepare(path: &Path) -> Result<Directory, Error> {
        check_name(path)?;
        let refuse = |what: &str, error: &io::Error| {
            Error::new(ErrorKind::Argument, format!("directory {path:?} cannot be {what}: {error}"))
        };
        let path = std::path::absolute(path).map_err(|error| refuse("named", &error))?;
        let made = make(&path).map_err(|error| refuse("made", &error))?;
        let prepare = || {
            let path = path.canonicalize().map_err(|error| refuse("found", &error))?;
            let (account, was_empty) = claim(&path)?;
            Ok(Directory { path, account, made: made.clone(), was_empty })
        };
        let prepared = prepare();
        if prepared.is_err() {
            unmake(&made);
        }
        prepared
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    pub(super) fn users(&self) -> PathBuf {
        self.path.join("windlass.users")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("server.log")
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(super) fn unfinished(&self) -> PathBuf {
        self.path.join("data.tmp")
    }

    /// Where the server is to listen: inside, or in a short directory of its own among
    /// the temporary ones.
    fn socket_directory(&self) -> PathBuf {
        let inside = self.path.join("socket");
        let name_bytes = format!("/.s.PGSQL.{PORT}").len();
        if inside.as_os_str().len() + name_bytes <= SOCKET_PATH_BYTES_MAX {
            return inside;
        }
        Path::new("/tmp").join(format!("windlass-{:016x}", short_hash(&self.path)))
    }

    /// Makes the directory of the socket and empties it of what a dead server left:
    /// a server refuses to start if the pid in the socket's lock file is alive,
    /// whoever has it now. To be called with the start lock held and no server there.
    pub(super) fn make_socket_directory(&self) -> Result<PathBuf, Error> {
        let path = self.socket_directory();
        let refuse = |error: io::Error| {
            let text = format!("directory {path:?} cannot be used for the socket: {error}");
            Error::new(ErrorKind::Argument, text)
        };
        make(&path).map_err(refuse)?;
        let directory = open(&path).map_err(refuse)?;
        if directory.metadata().map_err(refuse)?.uid() == 0 {
            // Root made it, just now or in a start that was killed.
            self.account.give(&directory).map_err(refuse)?;
        }
        let metadata = directory.metadata().map_err(refuse)?;
        if metadata.uid() != self.account.uid() || metadata.mode() & 0o077 != 0 {
            let text = format!(
                "directory {path:?} is to hold the socket, but is not private to account {:?}",
                self.account.name()
            );
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        for name in [format!(".s.PGSQL.{PORT}"), format!(".s.PGSQL.{PORT}.lock")] {
            match std::fs::remove_file(path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refuse(error)),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(path)
    }

    /// Removes the cluster with all its data.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.remove_outer_socket()?;
        std::fs::remove_dir_all(&self.path)?;
        unmake(self.made.get(1..).unwrap_or_default());
        Ok(())
    }

    fn remove_outer_socket(&self) -> io::Result<()> {
        let socket = self.socket_directory();
        if socket.starts_with(&self.path) {
            return Ok(());
        }
        match std::fs::remove_dir_all(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Takes back what a start has made that failed, and nothing else. To be called with
    /// the start lock held, in a directory that had no cluster before and has no server.
    ///
    /// Best effort: why the start failed is what matters.
    pub(super) fn undo(&self) {
        let _ = std::fs::remove_dir_all(self.data());
        let _ = std::fs::remove_dir_all(self.unfinished());
        let _ = self.remove_outer_socket();
        if self.was_empty {
            let _ = std::fs::remove_dir_all(self.path.join("socket"));
            let _ = std::fs::remove_file(self.log());
            let _ = std::fs::remove_file(self.users());
            // Last: with other files and without it, the directory would be a stranger's.
            let _ = std::fs::remove_file(self.lock());
        }
        self.unmake();
    }

    /// Removes the directories that were made for it, as far as they are empty.
    pub(super) fn unmake(&self) {
        unmake(&self.made);
    }
}

/// Refuses names that PostgreSQL's files or a connection string cannot carry.
fn check_name(path: &Path) -> Result<(), Error> {
    let is_plain =
        path.to_str().is_some_and(|path| !path.is_empty() && !path.contains(char::is_control));
    if is_plain {
        return Ok(());
    }
    let text = format!("directory {path:?} is empty, not UTF-8 or has a control character");
    Err(Error::new(ErrorKind::Argument, text))
}

/// Makes a private directory and what leads to it; answers what was not there, the
/// innermost first. If it fails, nothing was made.
fn make(path: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<&Path> = path.ancestors().take_while(|step| !step.exists()).collect();
    let mut made = Vec::new();
    for step in missing.into_iter().rev() {
        let mode = if step == path { 0o700 } else { 0o777 };
        match DirBuilder::new().mode(mode).create(step) {
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

/// Opens a directory itself, not what a link in its place names.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Makes a directory that is empty, or ours already, private to the server's account.
/// Says whether it is empty.
fn claim(path: &Path) -> Result<(Account, bool), Error> {
    let refuse = |error: io::Error| {
        let text = format!("directory {path:?} cannot be used for a database: {error}");
        Error::new(ErrorKind::Argument, text)
    };
    let directory = open(path).map_err(refuse)?;
    // In this order: another start that has put something in it has given it away before.
    let is_empty = is_empty(path).map_err(refuse)?;
    let metadata = directory.metadata().map_err(refuse)?;
    let account = Account::choose(metadata.uid())?;
    if !is_empty && !path.join(LOCK).exists() {
        let text = format!(
            "directory {path:?} holds other files and no database of Windlass; \
             choose an empty or a new one"
        );
        return Err(Error::new(ErrorKind::Conflict, text));
    }
    // Root may give away what is its own and empty, and nothing else.
    let is_given = is_empty && super::account::is_root() && metadata.uid() == 0;
    if metadata.uid() != account.uid() && !is_given {
        let text = format!(
            "directory {path:?} belongs to uid {}, but the server runs as account {:?}; \
             choose another directory, or make that account its owner",
            metadata.uid(),
            account.name()
        );
        return Err(Error::new(ErrorKind::Argument, text));
    }
    account.check_can_reach(path)?;
    account.give(&directory).map_err(refuse)?;
    if metadata.mode() & 0o777 != 0o700 {
        directory.set_permissions(Permissions::from_mode(0o700)).map_err(refuse)?;
    }
    Ok((account, is_empty))
}

/// Whether nothing is in a directory but what a file system has of itself.
fn is_empty(path: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(path)? {
        if entry?.file_name() != "lost+found" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// FNV-1a: the same for every build of Windlass, as std's hashers are not.
fn short_hash(path: &Path) -> u64 {
    path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_inside_the_directory_if_its_path_is_short_enough() {
        let overhead = "/socket/.s.PGSQL.5432".len();
        let longest = format!("/{}", "d".repeat(SOCKET_PATH_BYTES_MAX - overhead - 1));
        let directory = |path: &str| Directory {
            path: PathBuf::from(path),
            account: Account::choose(0).unwrap(),
            made: Vec::new(),
            was_empty: true,
        };
        let inside = directory(&longest).socket_directory();
        assert_eq!(inside, Path::new(&longest).join("socket"));
        let outside = directory(&(longest + "d")).socket_directory();
        assert!(outside.starts_with("/tmp"), "{outside:?}");
    }

    #[test]
    fn a_name_that_postgres_cannot_carry_is_refused_with_its_value() {
        for path in ["", "a\nb", "a\0b"] {
            let error = Directory::prepare(Path::new(path)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Argument);
            assert!(error.to_string().contains(&format!("{path:?}")), "{error}");
        }
    }

    #[test]
    fn a_directory_with_other_files_is_refused_and_left_as_it_was() {
        let path = std::env::temp_dir().join(format!("windlass-foreign-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        std::fs::write(path.join("letter.txt"), "dear").unwrap();
        let error = Directory::prepare(&path).unwrap_err();
        let mode = std::fs::metadata(&path).unwrap().mode() & 0o777;
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("holds other files"), "{error}");
        assert_eq!(mode, 0o755);
    }
}
