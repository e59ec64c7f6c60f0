//! Clusters for tests, made by `initdb` once and copied from then on.
//!
//! Some sixty tests start a PostgreSQL of their own. What `initdb` does for each takes 0.7 s of
//! a core, a copy of what it did 0.05 s. So the tests are shown programs of which `initdb`
//! copies a cluster that the real one has made with the same arguments, if there is one.

use std::path::{Path, PathBuf};

/// Where the tests look for the programs, as everyone does.
pub(crate) const PROGRAMS: &str = "WINDLASS_PG_BIN";

/// Where a test finds the real ones that is about `initdb` itself.
pub(crate) const REAL_PROGRAMS: &str = "WINDLASS_TEST_PG_BIN";

/// Where Debian and its kin keep the programs, by version. Elsewhere nothing is copied.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The file system in memory of Linux.
const MEMORY: &str = "/dev/shm";

/// The programs that tests are shown; gone when this is dropped.
pub(crate) struct Clusters {
    place: PathBuf,
    real: PathBuf,
}

impl Clusters {
    /// None if the programs are not where they are looked for, or cannot be stood in for:
    /// then each test makes its own.
    pub(crate) fn prepare() -> Option<Clusters> {
        let named = std::env::var_os(PROGRAMS).filter(|value| !value.is_empty());
        let real = named.map(PathBuf::from).or_else(|| newest(Path::new(VERSIONS)))?;
        let memory = Path::new(MEMORY);
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let place = parent.join(format!("windlass-clusters-{}", std::process::id()));
        let clusters = Clusters { place, real };
        clusters.write().ok()?;
        Some(clusters)
    }

    /// What the tests are told.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [(PROGRAMS, self.programs()), (REAL_PROGRAMS, self.real.clone())]
    }

    fn programs(&self) -> PathBuf {
        self.place.join("bin")
    }

    #[cfg(unix)]
    fn write(&self) -> std::io::Result<()> {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt;

        let (programs, made) = (self.programs(), self.place.join("clusters"));
        std::fs::create_dir_all(&programs)?;
        std::fs::create_dir_all(&made)?;
        // `initdb` runs as the account of the server.
        for (path, mode) in [(&self.place, 0o755), (&programs, 0o755), (&made, 0o1777)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        let initdb = self.real.join("initdb");
        for (name, script) in [
            ("postgres", postgres(&self.real.join("postgres"))),
            ("initdb", copying(&initdb, &made)),
        ] {
            let path = programs.join(name);
            std::fs::write(&path, script)?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn write(&self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// The programs of the newest version in a directory of versions.
fn newest(versions: &Path) -> Option<PathBuf> {
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let entries = std::fs::read_dir(versions).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let numbered = entries.filter_map(|path| Some((number(&path)?, path.join("bin"))));
    let whole = |bin: &Path| bin.join("postgres").is_file() && bin.join("initdb").is_file();
    Some(numbered.filter(|(_, bin)| whole(bin)).max_by_key(|(number, _)| *number)?.1)
}

/// A script and not a link: links are followed to the real `initdb` as well.
fn postgres(real: &Path) -> String {
    format!("#!/bin/sh\nexec '{}' \"$@\"\n", real.display())
}

/// An `initdb` that copies. What it makes appears under its name when it is whole.
fn copying(real: &Path, made: &Path) -> String {
    let (real, made) = (real.display(), made.display());
    format!(
        r#"#!/bin/sh
data= rest= previous=
for argument; do
    if [ "$previous" = --pgdata ]; then data=$argument; else rest="$rest $argument"; fi
    previous=$argument
done
[ -n "$data" ] || exec '{real}' "$@"
made='{made}'/$(echo "$rest" | cksum | tr ' ' -)
[ ! -d "$made" ] || exec cp -a "$made" "$data"
'{real}' "$@" || exit
cp -a "$data" "$made.$$" && mv -T "$made.$$" "$made" 2>/dev/null || rm -rf "$made.$$"
"#
    )
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_same_cluster_is_made_once_and_copied_from_then_on() {
        let script = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let root = std::env::temp_dir().join(format!("xtask-clusters-{}", std::process::id()));
        let place = root.join("shown");
        let real = root.join("versions/16/bin");
        let initdb = "#!/bin/sh\nmkdir \"$2\"; echo \"$3\" > \"$2/made\"; echo real\n";
        script(real.join("initdb"), initdb);
        script(real.join("postgres"), "#!/bin/sh\necho \"$@\"\n");
        script(root.join("versions/9/bin/postgres"), "no initdb beside it");
        assert_eq!(newest(&root.join("versions")), Some(real.clone()));
        let clusters = Clusters { place: place.clone(), real };
        clusters.write().unwrap();
        let run = |name: &str, arguments: &[&str]| {
            let output = Command::new(clusters.programs().join(name)).args(arguments).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let make = |name: &str, option: &str| {
            let data = root.join(name);
            let said = run("initdb", &["--pgdata", data.to_str().unwrap(), option]);
            (said, std::fs::read_to_string(data.join("made")).unwrap())
        };
        assert_eq!(make("first", "--one"), ("real\n".to_owned(), "--one\n".to_owned()));
        assert_eq!(make("second", "--one"), (String::new(), "--one\n".to_owned()));
        assert_eq!(make("third", "--two"), ("real\n".to_owned(), "--two\n".to_owned()));
        assert_eq!(run("postgres", &["--version", "a b"]), "--version a b\n");
        drop(clusters);
        assert!(!place.exists());
        std::fs::remove_dir_all(root).unwrap();
    }
}
