//! The two commands of the README on a bare Debian: no PostgreSQL, no cargo-nextest, no git
//! configuration, nothing built before.
//!
//! A machine on which the project is developed has more installed than a user's, so what is
//! missing from the README goes unnoticed there. This command debootstraps a minimal system into
//! `target/bare`, clones the last commit into it and runs both commands as root, in mount and
//! process namespaces of their own. Everything they start ends with them.
//!
//! The system shares two things with the machine: the Rust toolchain, which the README asks for,
//! and the network with its certificates and cargo's choice of registry.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Failure;
use crate::steps::{call, has_nextest};

/// The oldest supported Debian, and where it comes from.
const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";

/// What the README asks for besides the Rust toolchain.
const PACKAGES: &str = "ca-certificates,gcc,git,libc6-dev";

/// The system, below the workspace.
const SYSTEM: &str = "target/bare";

/// Paths inside the system.
const TOOLCHAIN: &str = "opt/rust";
const CLONE: &str = "root/windlass";
const CARGO_HOME: &str = "root/.cargo";

/// Files of the machine without which the system has no network.
const NETWORK: [&str; 3] = ["etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt"];

/// The commands of the README.
const COMMANDS: [&str; 2] = ["cargo run --release -- demo", "cargo xtask test"];

/// Runs both commands. Removes the system if they pass.
pub(crate) fn check(root: &Path, with_nextest: bool) -> Result<(), Failure> {
    check_host(with_nextest)?;
    let system = root.join(SYSTEM);
    remove(&system)?;
    build(root, &system, with_nextest)?;
    for line in COMMANDS {
        let began = Instant::now();
        println!("== bare: {line}");
        call("bare", line, enter(&system, line).stdin(Stdio::null()))?;
        println!("== bare: {line}: passed in {:.0} s", began.elapsed().as_secs_f64());
    }
    remove(&system)
}

/// Fails if this machine cannot build the system.
fn check_host(with_nextest: bool) -> Result<(), Failure> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !is_root {
        return Err(Failure::Check("bare needs root for debootstrap and chroot".into()));
    }
    for program in ["debootstrap", "unshare"] {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if version.status().is_err() {
            let message =
                format!("bare needs {program}; on Debian: apt-get install debootstrap util-linux");
            return Err(Failure::Check(message));
        }
    }
    if with_nextest && !has_nextest() {
        return Err(Failure::Check("bare --nextest needs cargo-nextest on this machine".into()));
    }
    Ok(())
}

/// Builds the system: Debian, the toolchain, the network and a clone of the last commit.
fn build(root: &Path, system: &Path, with_nextest: bool) -> Result<(), Failure> {
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &format!("--include={PACKAGES}"), SUITE]);
    debootstrap.arg(system).arg(MIRROR).stdout(Stdio::null());
    println!("-- debootstrap {SUITE} into {SYSTEM}");
    call("debootstrap", "debootstrap", &mut debootstrap)?;
    create_directory(&system.join(TOOLCHAIN))?;
    create_directory(&system.join(CARGO_HOME))?;
    for file in NETWORK {
        copy_if_exists(&Path::new("/").join(file), &system.join(file))?;
    }
    let cargo_home = cargo_home();
    copy_if_exists(&cargo_home.join("config.toml"), &system.join(CARGO_HOME).join("config.toml"))?;
    if with_nextest {
        let to = system.join("usr/local/bin/cargo-nextest");
        copy_if_exists(&cargo_home.join("bin/cargo-nextest"), &to)?;
    }
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-hardlinks"]).arg(root).arg(system.join(CLONE));
    call("git clone", "git clone", &mut git)
}

/// The command that runs a line inside the system, in the clone.
fn enter(system: &Path, line: &str) -> Command {
    // The mounts and the processes belong to the namespaces and end with them.
    let script = format!(
        "set -e; cd \"$1\"; \
         mount --options bind,ro \"$2\" {TOOLCHAIN}; \
         mount --rbind /dev dev; \
         mount -t tmpfs shm dev/shm; \
         mount -t proc proc proc; \
         mount -t sysfs sys sys; \
         exec chroot . /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
         PATH=/{TOOLCHAIN}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
         sh -c 'cd /{CLONE} && {line}'"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script, "sh"]);
    unshare.arg(system).arg(sysroot());
    unshare
}

/// The directory of the toolchain that runs this program.
fn sysroot() -> PathBuf {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.map_or_else(|_| PathBuf::from("/usr"), PathBuf::from)
}

fn cargo_home() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).unwrap_or_default()
}

fn create_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| failed("create", path, &error))
}

fn copy_if_exists(from: &Path, to: &Path) -> Result<(), Failure> {
    if !from.exists() {
        return Ok(());
    }
    std::fs::copy(from, to).map(|_| ()).map_err(|error| failed("copy", from, &error))
}

fn remove(system: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(system) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("remove", system, &error))
        }
        _ => Ok(()),
    }
}

fn failed(verb: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Check(format!("cannot {verb} {}: {error}", path.display()))
}
