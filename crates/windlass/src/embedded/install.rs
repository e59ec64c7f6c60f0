//! Getting PostgreSQL where there is none.
//!
//! Root on Debian and its descendants gets the distribution's package: no stranger
//! needs to be trusted that the machine does not trust already. Everyone else gets
//! the command to type. Nothing is downloaded past the package manager.

use std::path::Path;
use std::process::Command;

use super::account::is_root;
use super::binaries::{Binaries, MAJOR_MIN, VARIABLE};
use crate::{Error, ErrorKind};

/// How many lines of a failed installation are shown.
const OUTPUT_LINES_MAX: usize = 10;

/// Held while the package is installed. Only root can write there, and only root
/// installs.
const INSTALL_LOCK: &str = "/run/windlass-install.lock";

/// How long to wait for another package manager that is at work.
const APT_LOCK: &str = "DPkg::Lock::Timeout=300";

/// The settings by which Debian decides whether a package makes a cluster.
const CLUSTER_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

/// A family of systems with one way to install PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Debian,
    Fedora,
    Suse,
    Arch,
    Alpine,
    Mac,
    Unknown,
}

impl System {
    fn of_this_machine() -> System {
        if cfg!(target_os = "macos") {
            return System::Mac;
        }
        let read = |path| std::fs::read_to_string(path).ok();
        let release = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
        System::parse(&release.unwrap_or_default())
    }

    /// The family that `/etc/os-release` names in `ID`, or else in `ID_LIKE`.
    fn parse(release: &str) -> System {
        let value = |key: &str| {
            let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches(['"', '\''])
        };
        let names = value("ID").split(' ').chain(value("ID_LIKE").split(' '));
        let family = |name| match name {
            "debian" | "ubuntu" => Some(System::Debian),
            "fedora" | "rhel" | "centos" | "amzn" => Some(System::Fedora),
            "suse" | "opensuse" => Some(System::Suse),
            "arch" => Some(System::Arch),
            "alpine" => Some(System::Alpine),
            _ => None,
        };
        names.into_iter().find_map(family).unwrap_or(System::Unknown)
    }

    /// The command that installs PostgreSQL, as root would type it.
    fn command(self) -> Option<&'static str> {
        match self {
            System::Debian => Some("apt-get install postgresql"),
            System::Fedora => Some("dnf install postgresql-server"),
            System::Suse => Some("zypper install postgresql-server"),
            System::Arch => Some("pacman -S postgresql"),
            System::Alpine => Some("apk add postgresql"),
            System::Mac => Some("brew install postgresql@17"),
            System::Unknown => None,
        }
    }

    /// What to tell someone who has no PostgreSQL.
    fn advice(self, is_root: bool) -> String {
        let Some(command) = self.command() else {
            return format!(
                "install PostgreSQL {MAJOR_MIN} or newer, or name the directory of its programs \
                 with {VARIABLE}"
            );
        };
        let sudo = if is_root || self == System::Mac { "" } else { "sudo " };
        format!("install it with: {sudo}{command}")
    }
}

/// The error for a machine without PostgreSQL.
pub(super) fn none_found() -> Error {
    let advice = System::of_this_machine().advice(is_root());
    let text = format!("no PostgreSQL {MAJOR_MIN} or newer was found; {advice}");
    Error::new(ErrorKind::Unavailable, text)
}

/// Installs the distribution's package if this process may and knows how; says in
/// one line on standard error that it does.
///
/// # Errors
///
/// The error that names the command to type, or the end of what a package manager
/// wrote.
pub(super) fn install() -> Result<(), Error> {
    match System::of_this_machine() {
        System::Debian if is_root() => {}
        System::Debian
        | System::Fedora
        | System::Suse
        | System::Arch
        | System::Alpine
        | System::Mac
        | System::Unknown => return Err(none_found()),
    }
    // One installation at a time: apt-get does not wait for another's lists, and half
    // an installation looks like a whole one.
    let path = Path::new(INSTALL_LOCK);
    let lock = std::fs::File::create(path).map_err(|error| refuse(path, &error))?;
    lock.lock().map_err(|error| refuse(path, &error))?;
    if !Binaries::find(None)?.is_empty() {
        return Ok(());
    }
    eprintln!("windlass: no PostgreSQL found, installing the package \"postgresql\" with apt-get");
    // A bare machine has no lists. Where only one source of many is broken, the rest
    // will do.
    let updated = apt(&["update"]);
    // Brings the settings, so that what they said before can be put back.
    let prepared = apt(&["install", "--no-install-recommends", "postgresql-common"]);
    // Without lists no package is known: then the failed update is the cause to name.
    prepared.map_err(|error| updated.err().unwrap_or(error))?;
    without_cluster(Path::new(CLUSTER_SETTINGS), || {
        apt(&["install", "--no-install-recommends", "postgresql"])
    })
}

/// Does something while the settings keep Debian's packages from making and starting
/// a cluster for the whole machine, then puts the settings back.
fn without_cluster(settings: &Path, act: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let before = std::fs::read_to_string(settings).map_err(|error| refuse(settings, &error))?;
    let changed = format!("{before}\ncreate_main_cluster = false\n");
    std::fs::write(settings, changed).map_err(|error| refuse(settings, &error))?;
    let done = act();
    std::fs::write(settings, before).map_err(|error| refuse(settings, &error))?;
    done
}

fn refuse(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot change {path:?}: {error}"))
}

fn apt(arguments: &[&str]) -> Result<(), Error> {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-y", "-o", APT_LOCK]).args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
    let line = arguments.join(" ");
    let output = command.output().map_err(|error| {
        let text = format!("\"apt-get {line}\" cannot be run: {error}");
        Error::new(ErrorKind::Unavailable, text)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let written = [output.stdout, output.stderr].concat();
    let tail = super::log::tail(&String::from_utf8_lossy(&written), OUTPUT_LINES_MAX);
    let text = format!("\"apt-get {line}\" failed ({}):\n{tail}", output.status);
    Err(Error::new(ErrorKind::Unavailable, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_is_told_its_own_command() {
        let advice = |release: &str| System::parse(release).advice(false);
        assert_eq!(advice("ID=debian\n"), "install it with: sudo apt-get install postgresql");
        let mint = "NAME=\"Linux Mint\"\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n";
        assert_eq!(advice(mint), "install it with: sudo apt-get install postgresql");
        let rocky = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n";
        assert_eq!(advice(rocky), "install it with: sudo dnf install postgresql-server");
        let tumbleweed = "ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n";
        assert_eq!(advice(tumbleweed), "install it with: sudo zypper install postgresql-server");
        assert_eq!(advice("ID=arch\n"), "install it with: sudo pacman -S postgresql");
        assert_eq!(advice("ID=alpine\n"), "install it with: sudo apk add postgresql");
        assert_eq!(System::Mac.advice(false), "install it with: brew install postgresql@17");
        assert!(advice("ID=plan9\n").contains("WINDLASS_PG_BIN"));
        assert!(advice("").contains("PostgreSQL 14 or newer"));
    }

    #[test]
    fn a_machine_without_postgres_is_told_what_to_install() {
        let error = none_found();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.starts_with("no PostgreSQL 14 or newer was found; install "), "{text}");
    }

    #[test]
    fn root_is_not_told_to_use_sudo() {
        let advice = System::Debian.advice(true);
        assert_eq!(advice, "install it with: apt-get install postgresql");
    }

    #[test]
    fn the_settings_of_debian_are_put_back_whatever_happens() {
        let name = format!("windlass-createcluster-{}", std::process::id());
        let settings = std::env::temp_dir().join(name);
        let before = "#create_main_cluster = true\n";
        for fails in [false, true] {
            std::fs::write(&settings, before).unwrap();
            let done = without_cluster(&settings, || {
                let during = std::fs::read_to_string(&settings).unwrap();
                assert!(during.lines().any(|line| line == "create_main_cluster = false"));
                if fails { Err(none_found()) } else { Ok(()) }
            });
            assert_eq!(done.is_err(), fails);
            assert_eq!(std::fs::read_to_string(&settings).unwrap(), before);
        }
        std::fs::remove_file(&settings).unwrap();
    }
}
