//! Finding PostgreSQL's programs on this machine.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::install;
use crate::{Error, ErrorKind};

/// The oldest major version that Windlass runs on.
pub(super) const MAJOR_MIN: u32 = 14;

/// The environment variable that names the directory of the programs.
pub(super) const VARIABLE: &str = "WINDLASS_PG_BIN";

/// Where distributions keep several versions side by side: a directory, how the
/// names in it begin, and what follows them.
const VERSIONED: [(&str, &str, &str); 8] = [
    // Debian, Ubuntu.
    ("/usr/lib/postgresql", "", "bin"),
    // RHEL and Fedora with the packages of postgresql.org.
    ("/usr", "pgsql-", "bin"),
    // SUSE.
    ("/usr/lib", "postgresql", "bin"),
    // Alpine.
    ("/usr/libexec", "postgresql", ""),
    // Homebrew: on Apple silicon, on Intel, on Linux.
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
    // Postgres.app.
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// A directory with the programs of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binaries {
    directory: PathBuf,
    major: u32,
}

impl Binaries {
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What there is in a directory, if it has a server and `initdb`.
    fn probe(directory: &Path) -> Option<Binaries> {
        // The server finds its libraries from where it really is, so links are followed.
        let server = directory.join("postgres").canonicalize().ok()?;
        let directory = server
            .parent()
            .filter(|real| real.join("initdb").exists())
            .or_else(|| directory.join("initdb").exists().then_some(directory))?;
        let major = major(&answer(&server, "--version")?)?;
        Some(Binaries { directory: directory.to_owned(), major })
    }

    /// All usable programs, in the order in which they are looked for. A directory
    /// that was named is the only one that counts.
    pub(super) fn find(named: Option<&Path>) -> Result<Vec<Binaries>, Error> {
        let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        let Some(named) = named.or(variable.as_deref().map(Path::new)) else {
            return Ok(Binaries::probe_all(places()));
        };
        let found = Binaries::probe(named).ok_or_else(|| {
            let text = format!(
                "directory {named:?} was named for PostgreSQL's programs, \
                 but has no working \"postgres\" and \"initdb\""
            );
            Error::new(ErrorKind::Argument, text)
        })?;
        if found.major < MAJOR_MIN {
            let text = format!(
                "directory {named:?} has PostgreSQL {}, Windlass needs {MAJOR_MIN} or newer",
                found.major
            );
            return Err(Error::new(ErrorKind::Argument, text));
        }
        Ok(vec![found])
    }

    fn probe_all(places: impl IntoIterator<Item = PathBuf>) -> Vec<Binaries> {
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for place in places {
            let server = place.join("postgres").canonicalize();
            if server.is_ok_and(|server| seen.insert(server)) {
                found.extend(Binaries::probe(&place).filter(|it| it.major >= MAJOR_MIN));
            }
        }
        found
    }

    /// The programs for a cluster: those of its own major version, which alone can
    /// read its data, or the newest for one that does not exist yet.
    pub(super) fn choose(
        found: &[Binaries],
        data: &Path,
        demanded: Option<u32>,
    ) -> Result<Binaries, Error> {
        let Some(major) = demanded else {
            // The first of the newest: `max_by_key` would take the last.
            let newest = found.iter().rev().max_by_key(|it| it.major);
            return newest.cloned().ok_or_else(install::none_found);
        };
        found.iter().find(|it| it.major == major).cloned().ok_or_else(|| {
            let there: BTreeSet<String> = found.iter().map(|it| it.major.to_string()).collect();
            let there: Vec<String> = there.into_iter().collect();
            let text = format!(
                "the database in {data:?} is of PostgreSQL {major}, and only {} is installed; \
                 install {major}, or name its programs with {VARIABLE}",
                there.join(", ")
            );
            Error::new(ErrorKind::Conflict, text)
        })
    }
}

/// The directories to look in, in order: `PATH`, what `pg_config` says, and those of
/// the distributions. None need exist.
fn places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let said = answer(OsStr::new("pg_config").as_ref(), "--bindir");
    places.extend(said.map(|said| PathBuf::from(said.trim())));
    for (parent, prefix, suffix) in VERSIONED {
        places.extend(versions(Path::new(parent), prefix, suffix));
    }
    places.push(PathBuf::from("/usr/local/pgsql/bin"));
    places.retain(|place| place.is_absolute());
    places
}

/// The directories in `parent` whose names begin with `prefix`, sorted, each with
/// `suffix` behind it.
fn versions(parent: &Path, prefix: &str, suffix: &str) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let is_version = |name: &OsStr| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    entries
        .filter(|entry| is_version(&entry.file_name()))
        .map(|entry| entry.path().join(suffix))
        .collect()
}

/// What a program answers to a question, if it does.
fn answer(program: &Path, question: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg(question).env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// The major version in an answer such as `postgres (PostgreSQL) 15.18 (Debian …)`
/// or `postgres (PostgreSQL) 19devel`.
fn major(answer: &str) -> Option<u32> {
    let version = answer.split_once("(PostgreSQL)")?.1.trim_start();
    let end = version.find(|it: char| !it.is_ascii_digit()).unwrap_or(version.len());
    version[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Directories with programs that answer as PostgreSQL of some version does.
    struct Fakes(PathBuf);

    impl Fakes {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("windlass-{name}-{}", std::process::id()));
            std::fs::create_dir(&root).unwrap();
            Fakes(root.canonicalize().unwrap())
        }

        fn add(&self, name: &str, version: &str) -> PathBuf {
            let directory = self.0.join(name).join("bin");
            std::fs::create_dir_all(&directory).unwrap();
            for program in ["postgres", "initdb"] {
                let path = directory.join(program);
                let script = format!("#!/bin/sh\necho '{program} (PostgreSQL) {version}'\n");
                std::fs::write(&path, script).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            directory
        }
    }

    impl Drop for Fakes {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn versions_are_read_from_all_shapes_of_answers() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 19devel\n"), Some(19));
        assert_eq!(major("postgres (PostgreSQL) 9.6.24\n"), Some(9));
        assert_eq!(major("postgres: command not found"), None);
    }

    #[test]
    fn the_newest_version_wins_and_the_first_of_equals() {
        let fakes = Fakes::new("newest");
        fakes.add("a", "15.1");
        let first = fakes.add("b", "17.2");
        fakes.add("c", "17.4");
        fakes.add("old", "13.9");
        let found = Binaries::probe_all(versions(&fakes.0, "", "bin"));
        assert_eq!(found.iter().map(|it| it.major).collect::<Vec<_>>(), [15, 17, 17]);
        let chosen = Binaries::choose(&found, Path::new("/d"), None).unwrap();
        assert_eq!(chosen.directory, first);
    }

    #[test]
    fn a_cluster_gets_its_own_version_or_an_error_that_names_both() {
        let fakes = Fakes::new("own");
        let old = fakes.add("a", "15.1");
        fakes.add("b", "17.2");
        let found = Binaries::probe_all(versions(&fakes.0, "", "bin"));
        let data = Path::new("/d/data");
        assert_eq!(Binaries::choose(&found, data, Some(15)).unwrap().directory, old);
        let error = Binaries::choose(&found, data, Some(16)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let text = error.to_string();
        assert!(text.contains("\"/d/data\" is of PostgreSQL 16, and only 15, 17"), "{text}");
    }

    #[test]
    fn without_any_programs_the_error_says_what_to_install() {
        let error = Binaries::choose(&[], Path::new("/d/data"), None).unwrap_err();
        assert_eq!(error.to_string(), install::none_found().to_string());
    }

    #[test]
    fn programs_are_found_through_a_link_once() {
        let fakes = Fakes::new("links");
        let real = fakes.add("a", "16.0");
        let linked = fakes.0.join("linked");
        std::fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(real.join("postgres"), linked.join("postgres")).unwrap();
        let found = Binaries::probe_all([linked, real.clone()]);
        assert_eq!(found, [Binaries { directory: real, major: 16 }]);
    }

    #[test]
    fn a_named_directory_must_have_the_programs_in_a_usable_version() {
        let fakes = Fakes::new("named");
        let old = fakes.add("old", "13.4");
        let error = Binaries::find(Some(&old)).unwrap_err();
        assert!(error.to_string().contains("has PostgreSQL 13, Windlass needs 14"), "{error}");
        let error = Binaries::find(Some(&fakes.0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().contains(&format!("{:?}", fakes.0)), "{error}");
    }
}
