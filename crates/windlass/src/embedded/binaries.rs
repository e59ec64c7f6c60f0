//! Finding PostgreSQL's programs on this machine.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::answer::{Silent, answer};
use super::install::{self, Install};
use crate::{Error, ErrorKind};

/// The oldest major version that Windlass runs on.
pub(super) const MAJOR_MIN: u32 = 14;

/// The environment variable that names the directory of the programs.
pub(super) const VARIABLE: &str = "WINDLASS_PG_BIN";

/// How long a program may take to say its version. It takes milliseconds; a wrapper that
/// waits for something would be waited for with every start.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

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
    fn probe(directory: &Path, time_max: Duration) -> Result<Option<Binaries>, Silent> {
        // The server finds its libraries from where it really is, so links are followed.
        let Ok(server) = directory.join("postgres").canonicalize() else { return Ok(None) };
        let real = server.parent().filter(|real| real.join("initdb").exists());
        let named = || directory.join("initdb").exists().then_some(directory);
        let Some(directory) = real.or_else(named) else { return Ok(None) };
        let said = answer(&server, "--version", time_max)?;
        let major = said.and_then(|said| major(&said));
        Ok(major.map(|major| Binaries { directory: directory.to_owned(), major }))
    }

    /// All usable programs, in the order in which they are looked for. A directory
    /// that was named is the only one that counts.
    pub(super) fn find(named: Option<&Path>) -> Result<Vec<Binaries>, Error> {
        let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        let Some(named) = named.or(variable.as_deref().map(Path::new)) else {
            return Binaries::find_anywhere(places(ANSWER_TIME_MAX), ANSWER_TIME_MAX);
        };
        let probed = Binaries::probe(named, ANSWER_TIME_MAX).map_err(|silent| {
            let text =
                format!("directory {named:?} was named for PostgreSQL's programs, but {silent}");
            Error::new(ErrorKind::Argument, text)
        })?;
        let found = probed.ok_or_else(|| {
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

    /// What is found in these places. Programs that do not answer are named on standard
    /// error, and are the error if there are no others: whoever has them does not want
    /// another PostgreSQL installed.
    fn find_anywhere(places: Places, time_max: Duration) -> Result<Vec<Binaries>, Error> {
        let Places { directories, mut silent } = places;
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for place in directories {
            let server = place.join("postgres").canonicalize();
            if !server.is_ok_and(|server| seen.insert(server)) {
                continue;
            }
            match Binaries::probe(&place, time_max) {
                Ok(probed) => found.extend(probed.filter(|it| it.major >= MAJOR_MIN)),
                Err(it) => silent.push(it),
            }
        }
        match silent.first() {
            Some(first) if found.is_empty() => {
                let text = format!(
                    "no PostgreSQL {MAJOR_MIN} or newer was found that works: {first}; mend it, or \
                     name the directory of another with --pg-bin or {VARIABLE}"
                );
                Err(Error::new(ErrorKind::Unavailable, text))
            }
            Some(_) | None => {
                for it in silent {
                    eprintln!("windlass: {it}, and is left out");
                }
                Ok(found)
            }
        }
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
            return newest.cloned().ok_or_else(|| install::none_found(Install::default()));
        };
        found.iter().find(|it| it.major == major).cloned().ok_or_else(|| {
            let there: BTreeSet<String> = found.iter().map(|it| it.major.to_string()).collect();
            let there: Vec<String> = there.into_iter().collect();
            let text = format!(
                "the database in {data:?} is of PostgreSQL {major}, and only {} is installed; \
                 install {major}, or name its programs with --pg-bin or {VARIABLE}",
                there.join(", ")
            );
            Error::new(ErrorKind::Conflict, text)
        })
    }
}

/// Where to look for programs.
struct Places {
    /// In this order; none need exist.
    directories: Vec<PathBuf>,
    /// What was asked for more, and did not answer.
    silent: Vec<Silent>,
}

/// `PATH`, what `pg_config` says, and the directories of the distributions.
fn places(time_max: Duration) -> Places {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut silent = Vec::new();
    match answer(Path::new("pg_config"), "--bindir", time_max) {
        Ok(said) => directories.extend(said.map(|said| PathBuf::from(said.trim()))),
        Err(it) => silent.push(it),
    }
    for (parent, prefix, suffix) in VERSIONED {
        directories.extend(versions(Path::new(parent), prefix, suffix));
    }
    directories.push(PathBuf::from("/usr/local/pgsql/bin"));
    directories.retain(|place| place.is_absolute());
    Places { directories, silent }
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
            self.add_script(name, &format!("echo \"$(basename $0) (PostgreSQL) {version}\""))
        }

        fn add_script(&self, name: &str, script: &str) -> PathBuf {
            let directory = self.0.join(name).join("bin");
            std::fs::create_dir_all(&directory).unwrap();
            for program in ["postgres", "initdb"] {
                let path = directory.join(program);
                std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
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

    fn find(directories: impl IntoIterator<Item = PathBuf>) -> Result<Vec<Binaries>, Error> {
        let directories = directories.into_iter().collect();
        let places = Places { directories, silent: Vec::new() };
        Binaries::find_anywhere(places, ANSWER_TIME_MAX)
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
        let found = find(versions(&fakes.0, "", "bin")).unwrap();
        assert_eq!(found.iter().map(|it| it.major).collect::<Vec<_>>(), [15, 17, 17]);
        let chosen = Binaries::choose(&found, Path::new("/d"), None).unwrap();
        assert_eq!(chosen.directory, first);
    }

    #[test]
    fn a_cluster_gets_its_own_version_or_an_error_that_names_both() {
        let fakes = Fakes::new("own");
        let old = fakes.add("a", "15.1");
        fakes.add("b", "17.2");
        let found = find(versions(&fakes.0, "", "bin")).unwrap();
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
        assert_eq!(error.to_string(), install::none_found(Install::default()).to_string());
    }

    #[test]
    fn programs_are_found_through_a_link_once() {
        let fakes = Fakes::new("links");
        let real = fakes.add("a", "16.0");
        let linked = fakes.0.join("linked");
        std::fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(real.join("postgres"), linked.join("postgres")).unwrap();
        let found = find([linked, real.clone()]).unwrap();
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
    #[test]
    fn programs_that_do_not_answer_are_named_and_others_are_taken_instead() {
        let fakes = Fakes::new("silent");
        let stuck = fakes.add_script("a", "sleep 600");
        let time_max = Duration::from_millis(50);
        let places = |directories: &[&PathBuf]| Places {
            directories: directories.iter().copied().cloned().collect(),
            silent: Vec::new(),
        };
        let error = Binaries::find_anywhere(places(&[&stuck]), time_max).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        let program = stuck.join("postgres");
        let what = format!("{program:?} has not answered \"--version\" within 50ms");
        assert!(text.contains(&what), "{text}");
        let sound = fakes.add("b", "16.0");
        let found = Binaries::find_anywhere(places(&[&stuck, &sound]), Duration::from_secs(2));
        assert_eq!(found.unwrap(), [Binaries { directory: sound, major: 16 }]);
    }
}
