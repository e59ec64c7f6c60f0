//! Getting PostgreSQL where there is none.
//!
//! Whoever is root, or allows `sudo` to be used, gets the distribution's package: no
//! stranger needs to be trusted that the machine does not trust already. Everyone else
//! gets the command to type. Nothing is downloaded past the package manager.

mod hand;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hand::Hand;
use rustix::fs::OFlags;

use super::account::is_root;
use super::binaries::{Binaries, MAJOR_MIN, VARIABLE};
use crate::{Error, ErrorKind};

/// How long to wait for another package manager that is at work.
const APT_LOCK: &str = "DPkg::Lock::Timeout=300";

/// The settings by which Debian decides whether a package makes a cluster.
const CLUSTER_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

/// Whether the distribution's package of PostgreSQL is installed where none is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Install {
    /// It is not.
    Never,
    /// It is by a process of root.
    #[default]
    IfRoot,
    /// It is by a process of root, and through `sudo` by any other. `sudo` may ask for
    /// a password if standard input is a terminal, and must not need one otherwise.
    WithSudo,
}

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

    /// The same for a program, which answers no questions. `None` if there is more to do.
    fn unattended(self) -> Option<&'static [&'static str]> {
        match self {
            System::Fedora => Some(&["dnf", "-y", "install", "postgresql-server"]),
            System::Suse => Some(&["zypper", "--non-interactive", "install", "postgresql-server"]),
            System::Arch => Some(&["pacman", "-S", "--noconfirm", "postgresql"]),
            System::Alpine => Some(&["apk", "add", "postgresql"]),
            System::Mac => Some(&["brew", "install", "postgresql@17"]),
            System::Debian | System::Unknown => None,
        }
    }

    /// What to type on a machine that has no PostgreSQL.
    fn advice(self, is_root: bool) -> String {
        let Some(command) = self.command() else {
            return format!(
                "install PostgreSQL {MAJOR_MIN} or newer, or name the directory of its programs \
                 with --pg-bin or {VARIABLE}"
            );
        };
        let sudo = if is_root || self == System::Mac { "" } else { "sudo " };
        format!("install it with: {sudo}{command}")
    }
}

/// The error for a machine without PostgreSQL.
pub(super) fn none_found(install: Install) -> Error {
    let system = System::of_this_machine();
    let advice = advice(system, is_root(), install);
    let text = format!("no PostgreSQL {MAJOR_MIN} or newer was found; {advice}");
    Error::new(ErrorKind::Unavailable, text)
}

/// What to type, and how to let it be done if that was not said.
fn advice(system: System, is_root: bool, install: Install) -> String {
    let mut advice = system.advice(is_root);
    let is_allowed = match install {
        Install::Never => false,
        Install::IfRoot => is_root,
        Install::WithSudo => true,
    };
    if !is_allowed && system.command().is_some() {
        advice += "; or let it be installed with --install, in a program `Install::WithSudo`";
    }
    advice
}

/// Installs the distribution's package if this process may and knows how; says in
/// one line on standard error that it does.
///
/// # Errors
///
/// The error that names the command to type, or the end of what a package manager
/// wrote.
pub(super) fn install(install: Install) -> Result<(), Error> {
    let system = System::of_this_machine();
    let hand = Hand::new(system, install).ok_or_else(|| none_found(install))?;
    // One installation at a time: apt-get does not wait for another's lists, and half
    // an installation looks like a whole one.
    let path = lock_path();
    let lock = open_lock(&path).map_err(|error| refuse(&path, &error))?;
    lock.lock().map_err(|error| refuse(&path, &error))?;
    if !Binaries::find(None)?.is_empty() {
        return Ok(());
    }
    eprintln!("windlass: no PostgreSQL found, installing it ({})", hand.describe(system));
    install_package(system, &hand, Path::new(CLUSTER_SETTINGS))
}

/// Where root keeps its lock nobody else can write; others have one each.
fn lock_path() -> PathBuf {
    if is_root() {
        return PathBuf::from("/run/windlass-install.lock");
    }
    let uid = rustix::process::geteuid().as_raw();
    std::env::temp_dir().join(format!("windlass-install-{uid}.lock"))
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

/// Installs the package of a system.
fn install_package(system: System, hand: &Hand, settings: &Path) -> Result<(), Error> {
    let explain = |error: Error| {
        let advice = system.advice(is_root());
        Error::new(ErrorKind::Unavailable, format!("{}; {advice}", error.message()))
    };
    hand.check().map_err(explain)?;
    match (system, system.unattended()) {
        (_, Some(command)) => hand.run(command),
        (System::Debian, None) => install_on_debian(hand, settings),
        (
            System::Fedora
            | System::Suse
            | System::Arch
            | System::Alpine
            | System::Mac
            | System::Unknown,
            None,
        ) => return Err(none_found(Install::WithSudo)),
    }
    .map_err(explain)
}

fn install_on_debian(hand: &Hand, settings: &Path) -> Result<(), Error> {
    // Through `env`, because sudo passes no variables on.
    let apt = |arguments: &[&str]| {
        let call = "env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o";
        let call = call.split(' ').chain([APT_LOCK]).chain(arguments.iter().copied());
        hand.run(&call.collect::<Vec<_>>())
    };
    // A bare machine has no lists. Where only one source of many is broken, the rest
    // will do.
    let updated = apt(&["update"]);
    // Brings the settings, so that what they said before can be put back.
    let prepared = apt(&["install", "--no-install-recommends", "postgresql-common"]);
    // Without lists no package is known: then the failed update is the cause to name.
    prepared.map_err(|error| updated.err().unwrap_or(error))?;
    without_cluster(hand, settings, || apt(&["install", "--no-install-recommends", "postgresql"]))
}

/// Does something while the settings keep Debian's packages from making and starting
/// a cluster for the whole machine, then puts the settings back.
fn without_cluster(
    hand: &Hand,
    settings: &Path,
    act: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let before = std::fs::read_to_string(settings).map_err(|error| refuse(settings, &error))?;
    hand.write(settings, &format!("{before}\ncreate_main_cluster = false\n"))?;
    let done = act();
    hand.write(settings, &before)?;
    done
}

fn refuse(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot change {path:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::hand::tests::FakeSudo;
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
        assert!(advice("ID=plan9\n").contains("--pg-bin or WINDLASS_PG_BIN"));
        assert!(advice("").contains("PostgreSQL 14 or newer"));
    }

    #[test]
    fn a_machine_without_postgres_is_told_what_to_install() {
        let error = none_found(Install::IfRoot);
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
    fn whoever_may_not_install_is_told_the_command_and_the_flag() {
        let told = advice(System::Debian, false, Install::IfRoot);
        assert_eq!(
            told,
            "install it with: sudo apt-get install postgresql; or let it be installed with \
             --install, in a program `Install::WithSudo`"
        );
        // It was said already, or there is nothing that could be done.
        assert!(!advice(System::Debian, false, Install::WithSudo).contains("--install"));
        assert!(!advice(System::Debian, true, Install::IfRoot).contains("--install"));
        assert!(!advice(System::Unknown, false, Install::IfRoot).contains("--install"));
    }

    #[test]
    fn on_debian_everything_is_done_through_sudo_and_the_settings_are_put_back() {
        let sudo = FakeSudo::new("debian", "exec \"$@\"");
        let settings = sudo.file("createcluster.conf", "#create_main_cluster = true\n");
        let apt = sudo.file("seen", "");
        // What apt-get finds in the settings is written down beside what it was called with.
        sudo.program(
            "apt-get",
            &format!(
                "echo \"$DEBIAN_FRONTEND: $*\" >> {apt:?}; \
                 grep -x 'create_main_cluster = false' {settings:?} >> {apt:?} || true"
            ),
        );
        install_package(System::Debian, &sudo.hand(false), &settings).unwrap();
        let seen = std::fs::read_to_string(&apt).unwrap();
        let call = "noninteractive: -q -y -o DPkg::Lock::Timeout=300";
        let common = "install --no-install-recommends postgresql-common";
        let server = "install --no-install-recommends postgresql";
        let wanted = format!(
            "{call} update\n{call} {common}\n{call} {server}\ncreate_main_cluster = false\n"
        );
        assert_eq!(seen, wanted);
        let after = std::fs::read_to_string(&settings).unwrap();
        assert_eq!(after, "#create_main_cluster = true\n");
        // Without a terminal, sudo is never to ask for a password.
        assert!(sudo.calls().iter().all(|call| call.starts_with("-n ")), "{:?}", sudo.calls());
        assert_eq!(sudo.calls()[0], "-n true");
    }

    #[test]
    fn on_a_terminal_sudo_may_ask() {
        let sudo = FakeSudo::new("terminal", "");
        install_package(System::Fedora, &sudo.hand(true), Path::new("/none")).unwrap();
        assert_eq!(sudo.calls(), ["true", "dnf -y install postgresql-server"]);
    }

    #[test]
    fn a_sudo_that_refuses_is_quoted_and_nothing_is_tried_after_it() {
        let sudo = FakeSudo::new("refusal", "echo 'sudo: a password is required' >&2; exit 1");
        let refused = install_package(System::Debian, &sudo.hand(false), Path::new("/none"));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("-n true\" failed (exit status: 1):\nsudo: a password"), "{text}");
        assert!(text.contains("apt-get install postgresql"), "{text}");
        assert_eq!(sudo.calls(), ["-n true"]);
    }

    #[test]
    fn the_settings_of_debian_are_put_back_whatever_happens() {
        let name = format!("windlass-createcluster-{}", std::process::id());
        let settings = std::env::temp_dir().join(name);
        let before = "#create_main_cluster = true\n";
        for fails in [false, true] {
            std::fs::write(&settings, before).unwrap();
            let done = without_cluster(&Hand::own(), &settings, || {
                let during = std::fs::read_to_string(&settings).unwrap();
                assert!(during.lines().any(|line| line == "create_main_cluster = false"));
                if fails { Err(none_found(Install::Never)) } else { Ok(()) }
            });
            assert_eq!(done.is_err(), fails);
            assert_eq!(std::fs::read_to_string(&settings).unwrap(), before);
        }
        std::fs::remove_file(&settings).unwrap();
    }
}
