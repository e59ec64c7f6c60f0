//! The cluster on disk: made once by `initdb`, and the settings it is served with.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;

use super::binaries::Binaries;
use super::directory::{Directory, PORT};
use super::lock::StartLock;
use crate::{Error, ErrorKind};

/// The superuser of every cluster.
pub(super) const USER: &str = "windlass";

/// The database of every cluster that `initdb` makes.
pub(super) const DATABASE: &str = "postgres";

/// How many lines of a failed `initdb` are shown.
const OUTPUT_LINES_MAX: usize = 10;

/// Whether one call makes everything on a file system durable. `initdb` syncs file by
/// file instead, which takes 1.7 to 3 s of its 3 to 4.4 s here; this takes 0.03 to 0.15 s.
const HAS_SYNCFS: bool = cfg!(target_os = "linux");

/// The major version of the cluster in a directory. `None` if there is no cluster.
pub(super) fn major(data: &Path) -> Result<Option<u32>, Error> {
    let path = data.join("PG_VERSION");
    let text = match std::fs::read_to_string(&path) {
        Err(_) if !data.exists() => return Ok(None),
        Err(error) => {
            let text = format!("directory {data:?} is no cluster: cannot read {path:?}: {error}");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(text) => text,
    };
    let major = text.trim().split('.').next().and_then(|major| major.parse().ok());
    let refuse =
        || Error::new(ErrorKind::Corrupt, format!("{path:?} holds {text:?}, which is no version"));
    major.map(Some).ok_or_else(refuse)
}

/// Makes a cluster. It appears under its name when it is whole: a kill at any moment
/// leaves nothing that a start would take for one.
pub(super) fn initialize(
    directory: &Directory,
    binaries: &Binaries,
    lock: &StartLock,
    is_durable: bool,
) -> Result<(), Error> {
    let unfinished = directory.unfinished();
    let refuse = |what: &str, error: io::Error| {
        let text = format!("cannot {what} the new cluster {unfinished:?}: {error}");
        Error::new(ErrorKind::Unavailable, text)
    };
    match std::fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(refuse("clear the place of", error));
        }
        Ok(()) | Err(_) => {}
    }
    run_initdb(directory, binaries, lock, is_durable && !HAS_SYNCFS)?;
    if is_durable {
        sync_file_system(directory.path()).map_err(|error| refuse("sync", error))?;
    }
    std::fs::rename(&unfinished, directory.data()).map_err(|error| refuse("rename", error))?;
    if is_durable {
        let sync = || File::open(directory.path())?.sync_all();
        sync().map_err(|error| refuse("sync", error))?;
    }
    Ok(())
}

fn run_initdb(
    directory: &Directory,
    binaries: &Binaries,
    lock: &StartLock,
    syncs: bool,
) -> Result<(), Error> {
    let program = binaries.program("initdb");
    let account = directory.account();
    let mut command = account.command(&program, directory.path());
    // It never reads its input. Holding the lock there, it keeps the next start
    // waiting if it outlives this process.
    command.stdin(Stdio::from(lock.share()?));
    command.arg("--pgdata").arg(directory.unfinished());
    command.arg("--username").arg(USER);
    // Whoever gets through the private directory to the socket is the owner.
    command.args(["--auth-local=trust", "--auth-host=reject"]);
    // The same order of texts on every machine.
    command.args(["--encoding=UTF8", "--locale=C", "--no-instructions"]);
    if !syncs {
        command.arg("--no-sync");
    }
    let output = command.output().map_err(|error| {
        let text = format!("{program:?} cannot be run by {:?}: {error}", account.name());
        Error::new(ErrorKind::Unavailable, text)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let written = [output.stdout, output.stderr].concat();
    let tail = super::log::tail(&String::from_utf8_lossy(&written), OUTPUT_LINES_MAX);
    let text = format!(
        "{program:?} could not make a cluster in {:?} ({}):\n{tail}",
        directory.path(),
        output.status
    );
    Err(Error::new(ErrorKind::Unavailable, text))
}

#[cfg(target_os = "linux")]
fn sync_file_system(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// Nothing to do: `initdb` has synced every file.
#[cfg(not(target_os = "linux"))]
fn sync_file_system(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// What a server is started with. The user's own settings come last and win.
pub(super) fn settings(
    socket_directory: &Path,
    is_durable: bool,
    own: &[(String, String)],
) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut set = |name: &str, value: &str| settings.push((name.to_owned(), value.to_owned()));
    // A private server: one socket, in a directory that only its account can enter.
    set("listen_addresses", "");
    set("port", &PORT.to_string());
    let quoted = socket_directory.to_string_lossy().replace('"', "\"\"");
    set("unix_socket_directories", &format!("\"{quoted}\""));
    set("unix_socket_permissions", "0700");
    set("cluster_name", USER);
    set("logging_collector", "off");
    set("log_checkpoints", "off");
    // A laptop or a small machine, shared with the programs that use the database.
    set("shared_buffers", "64MB");
    set("max_wal_size", "512MB");
    // Not `"$user", public`: the role has the name of our schema, which would be the place of
    // tables that users make without naming one.
    set("search_path", "public");
    // The engine's statements are short; compiling them takes longer than running them.
    set("jit", "off");
    if HAS_SYNCFS {
        // Opening every file after a crash took 31 s where this took 0.8 s.
        set("recovery_init_sync_method", "syncfs");
    }
    if !is_durable {
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            set(name, "off");
        }
    }
    settings.extend_from_slice(own);
    settings
}

/// Refuses a setting that could not be passed on as it is.
pub(super) fn check_setting(name: &str, value: &str) -> Result<(), Error> {
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '.';
    if name.is_empty() || !name.chars().all(is_name) {
        let text = format!("setting {name:?} is not a name of PostgreSQL's");
        return Err(Error::new(ErrorKind::Argument, text));
    }
    if value.contains('\0') {
        let text = format!("value {value:?} of setting {name:?} has a NUL");
        return Err(Error::new(ErrorKind::Argument, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_setting_comes_last_and_a_path_is_quoted() {
        let own = [("jit".to_owned(), "on".to_owned())];
        let settings = settings(Path::new("/a, \"b\""), true, &own);
        let value = |name: &str| {
            settings.iter().rfind(|(it, _)| it == name).map(|(_, value)| value.as_str())
        };
        assert_eq!(value("jit"), Some("on"));
        assert_eq!(value("unix_socket_directories"), Some("\"/a, \"\"b\"\"\""));
        assert_eq!(value("listen_addresses"), Some(""));
        assert_eq!(value("fsync"), None);
    }

    #[test]
    fn a_setting_that_cannot_be_passed_on_is_refused_with_its_name() {
        assert!(check_setting("auto_explain.log_min_duration", "10ms").is_ok());
        for (name, value) in [("", "1"), ("a b", "1"), ("a=b", "1"), ("jit", "o\0n")] {
            let error = check_setting(name, value).unwrap_err();
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
        }
    }
}
