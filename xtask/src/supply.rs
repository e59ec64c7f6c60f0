//! The supply chain: what may be among the dependencies, as `deny.toml` says.
//!
//! cargo-deny judges. It is installed under `target/tools` where it is not there, in the version
//! that is named here and with the dependencies that it was released with: about a minute on two
//! cores, without optimisation, once per checkout. Its own judgement takes seconds.
//!
//! Known vulnerabilities are not asked for: see `deny.toml`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::steps::{call, cargo, words};

/// The version of cargo-deny. Another one may judge otherwise.
const DENY_VERSION: &str = "0.20.2";

/// Where tools of this workspace are installed.
const TOOLS: &str = "target/tools";

/// What is checked. Warnings, such as two versions of one crate, are for `cargo deny check`.
const CHECK: &str = "--locked --log-level error check bans licenses sources";

/// Checks the dependencies.
pub(crate) fn check(root: &Path) -> Result<(), Failure> {
    let program = match installed(root) {
        Some(program) => program,
        None => install(root)?,
    };
    let mut command = Command::new(&program);
    command.args(words(CHECK)).current_dir(root);
    call("supply chain", &format!("{} {CHECK}", program.to_string_lossy()), &mut command)
}

/// cargo-deny of the right version: the one of this workspace, or the machine's.
fn installed(root: &Path) -> Option<OsString> {
    let own = own(root).into_os_string();
    [own, OsString::from("cargo-deny")].into_iter().find(|program| {
        let said = Command::new(program).arg("--version").output();
        said.is_ok_and(|said| is_version(&String::from_utf8_lossy(&said.stdout)))
    })
}

/// Whether that is what the right version says of itself.
fn is_version(said: &str) -> bool {
    said.trim() == format!("cargo-deny {DENY_VERSION}")
}

fn own(root: &Path) -> PathBuf {
    root.join(TOOLS).join(format!("bin/cargo-deny{}", std::env::consts::EXE_SUFFIX))
}

fn install(root: &Path) -> Result<OsString, Failure> {
    let arguments = install_arguments();
    let line = format!("cargo {}", arguments.join(" "));
    println!("-- cargo-deny {DENY_VERSION} is not there, installing it into {TOOLS}: {line}");
    let mut command = cargo(root);
    // What a step of the test builds with is not meant for it.
    command.args(&arguments).env("CARGO_PROFILE_DEV_DEBUG", "0").env_remove("RUSTFLAGS");
    call("installing cargo-deny", &line, &mut command)?;
    Ok(own(root).into_os_string())
}

fn install_arguments() -> Vec<String> {
    words(&format!(
        "install --locked cargo-deny --version ={DENY_VERSION} --no-default-features --debug \
         --root {TOOLS}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn another_version_is_not_taken() {
        assert!(is_version(&format!("cargo-deny {DENY_VERSION}\n")));
        for other in ["", "cargo-deny 0.14.2\n", &format!("cargo-deny {DENY_VERSION}0\n")] {
            assert!(!is_version(other), "{other}");
        }
    }

    #[test]
    fn the_tool_is_installed_by_its_exact_version_and_lock() {
        let line = install_arguments().join(" ");
        assert!(line.contains(&format!(" --version ={DENY_VERSION} ")), "{line}");
        assert!(line.contains(" --locked "), "{line}");
    }

    /// That each rule is kept is cargo-deny's to test; that the rules are there is ours.
    #[test]
    fn the_rules_name_openssl_licences_and_one_source() {
        let rules = std::fs::read_to_string(workspace::root().join("deny.toml")).unwrap();
        for banned in ["openssl", "openssl-sys", "native-tls"] {
            assert!(rules.contains(&format!("{{ crate = \"{banned}\", ")), "{banned}");
        }
        let source = "allow-registry = [\"https://github.com/rust-lang/crates.io-index\"]";
        for rule in
            ["unknown-git = \"deny\"", "unknown-registry = \"deny\"", "allow-git = []", source]
        {
            assert!(rules.contains(rule), "{rule}");
        }
        for open in ["GPL-", "MPL-", "exceptions"] {
            assert!(!rules.contains(open), "{open}");
        }
    }
}
