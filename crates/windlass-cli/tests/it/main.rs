//! The binary, as people run it.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

#[cfg(unix)]
mod audit;
#[cfg(unix)]
mod bench;
mod config;
#[cfg(unix)]
mod dead;
#[cfg(unix)]
mod demo;
#[cfg(unix)]
mod dev;
#[cfg(unix)]
mod doctor;
#[cfg(unix)]
mod fleet;
#[cfg(unix)]
mod functions;
mod help;
#[cfg(unix)]
mod migrate;
#[cfg(target_os = "linux")]
mod netns;
#[cfg(unix)]
mod people;
#[cfg(unix)]
mod place;
#[cfg(unix)]
mod retention;
#[cfg(unix)]
mod runs;
mod schedules;
#[cfg(unix)]
mod sealed;
mod secrets;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod server;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod tls;
#[cfg(unix)]
mod tokens;
#[cfg(unix)]
mod upgrade;
mod workers;

use std::process::{Command, Output};

/// The binary, to be run with arguments, and without a database to be found by chance.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(arguments).env("XDG_CONFIG_HOME", "/nowhere");
    for name in ["DATABASE_URL", "DATABASE_URL_FILE", "WINDLASS_SERVER", "WINDLASS_PROFILE"] {
        command.env_remove(name);
    }
    let server = ["TOKEN", "TOKEN_FILE", "CA_FILE", "CLIENT_CERT_FILE", "CLIENT_KEY_FILE"];
    for name in server.into_iter().chain(["PAYLOAD_KEYS", "PAYLOAD_KEYS_FILE"]) {
        command.env_remove(format!("WINDLASS_{name}"));
    }
    command
}

fn windlass(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary was built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is UTF-8")
}

#[track_caller]
fn assert_line(out: &str, parts: &[&str]) {
    let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
    assert!(out.lines().any(has_all), "no line with {parts:?} in\n{out}");
}

#[test]
fn the_version_and_the_help_are_printed() {
    let version = windlass(&["--version"]);
    assert!(version.status.success());
    assert_eq!(text(&version.stdout), format!("windlass {}\n", env!("CARGO_PKG_VERSION")));
    let help = windlass(&["help"]);
    assert!(help.status.success());
    let help = text(&help.stdout);
    assert_line(&help, &["demo", "orders"]);
    assert!(!help.contains("demo-worker"), "{help}");
}

#[test]
fn what_cannot_be_understood_is_refused_with_exit_code_2() {
    for (arguments, complaint) in [
        (&["dance"][..], "unrecognized subcommand 'dance'"),
        (&["demo", "--speed", "0"], "not within 0.1 to 100"),
        (&["demo", "--orders", "3"], "expected a whole number from 4 to 200"),
        (&["demo", "--orders", "201"], "expected a whole number from 4 to 200"),
        (&["serve", "--connections", "x"], "expected a whole number from 2 to 65535"),
        (&["events", "019a", "--after", "x"], "expected a whole number from 0 to"),
        (&["start", "a", "--id", "7"], "expected a UUID such as"),
        (&["migrate"], "--database-url <URL>"),
    ] {
        let output = windlass(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_line(&text(&output.stderr), &[complaint]);
    }
}
