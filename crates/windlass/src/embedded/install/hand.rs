//! Whose hand does what only root may: this process's own, or that of `sudo`.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::super::account::is_root;
use super::{Install, System};
use crate::{Error, ErrorKind};

/// How many lines of a failed command are shown.
const OUTPUT_LINES_MAX: usize = 10;

/// How commands are called that change the machine.
#[derive(Clone, Debug)]
pub(super) struct Hand {
    /// The program that is put before them, and its own arguments; none for our own hand.
    sudo: Option<(PathBuf, &'static [&'static str])>,
}

impl Hand {
    /// The hand by which PostgreSQL may be installed on a system, if there is one.
    pub(super) fn new(system: System, install: Install) -> Option<Hand> {
        let through_sudo = Hand::through("sudo".into(), std::io::stdin().is_terminal());
        match (system, install, is_root()) {
            // Homebrew refuses root, and needs nobody else.
            (System::Mac, Install::WithSudo, false) => Some(Hand::own()),
            (System::Unknown | System::Mac, _, _) | (_, Install::Never, _) => None,
            (_, Install::IfRoot | Install::WithSudo, true) => Some(Hand::own()),
            (_, Install::WithSudo, false) => Some(through_sudo),
            (_, Install::IfRoot, false) => None,
        }
    }

    /// This process's own.
    pub(super) fn own() -> Hand {
        Hand { sudo: None }
    }

    /// That of a `sudo`, which asks for a password only if it may.
    fn through(program: PathBuf, may_ask: bool) -> Hand {
        let arguments: &[&str] = if may_ask { &[] } else { &["-n"] };
        Hand { sudo: Some((program, arguments)) }
    }

    /// What is said before an installation.
    pub(super) fn describe(&self, system: System) -> String {
        let sudo = if self.sudo.is_some() { "sudo " } else { "" };
        format!("{sudo}{}", system.command().unwrap_or_default())
    }

    /// Whether it can do anything at all. Asked once, and before anything is done: if a
    /// password is asked for and not known, that is the end of it.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.sudo.is_some() { self.run(&["true"]) } else { Ok(()) }
    }

    /// Runs a command, of which nothing is shown unless it fails.
    pub(super) fn run(&self, line: &[&str]) -> Result<(), Error> {
        let mut command = self.command(line);
        command.stdin(Stdio::null());
        let output = command_output(&mut command, None);
        judge(&command, output)
    }

    /// Writes a file that is there.
    pub(super) fn write(&self, path: &Path, text: &str) -> Result<(), Error> {
        if self.sudo.is_none() {
            return std::fs::write(path, text).map_err(|error| super::refuse(path, &error));
        }
        let mut command = self.command(&["tee", &path.to_string_lossy()]);
        command.stdin(Stdio::piped());
        let output = command_output(&mut command, Some(text));
        judge(&command, output)
    }

    fn command(&self, line: &[&str]) -> Command {
        match &self.sudo {
            None => {
                let mut command = Command::new(line[0]);
                command.args(&line[1..]);
                command
            }
            Some((sudo, arguments)) => {
                let mut command = Command::new(sudo);
                command.args(*arguments).args(line);
                command
            }
        }
    }
}

/// What a command wrote, once it was given what it reads.
fn command_output(command: &mut Command, input: Option<&str>) -> std::io::Result<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // A command that does not read it says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

fn judge(command: &Command, output: std::io::Result<Output>) -> Result<(), Error> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = output.map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("\"{line}\" cannot be run: {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let written = [output.stdout, output.stderr].concat();
    let tail = super::super::log::tail(&String::from_utf8_lossy(&written), OUTPUT_LINES_MAX);
    let text = format!("\"{line}\" failed ({}):\n{tail}", output.status);
    Err(Error::new(ErrorKind::Unavailable, text))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory with a `sudo` that writes down what it is called with, and then does
    /// what it was made to do, with the directory first in its `PATH`.
    pub(crate) struct FakeSudo(PathBuf);

    impl FakeSudo {
        pub(crate) fn new(name: &str, script: &str) -> Self {
            let name = format!("windlass-sudo-{name}-{}", std::process::id());
            let fake = FakeSudo(std::env::temp_dir().join(name));
            std::fs::create_dir(&fake.0).unwrap();
            let (calls, path) = (fake.0.join("calls"), &fake.0);
            let options = "if [ \"$1\" = -n ]; then shift; fi";
            fake.program(
                "sudo",
                &format!("echo \"$*\" >> {calls:?}\n{options}\nPATH={path:?}:$PATH\n{script}"),
            );
            fake
        }

        pub(crate) fn program(&self, name: &str, script: &str) {
            let path = self.file(name, &format!("#!/bin/sh\n{script}\n"));
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }

        pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        }

        pub(crate) fn hand(&self, may_ask: bool) -> Hand {
            Hand::through(self.0.join("sudo"), may_ask)
        }

        pub(crate) fn calls(&self) -> Vec<String> {
            let calls = std::fs::read_to_string(self.0.join("calls")).unwrap();
            calls.lines().map(str::to_owned).collect()
        }
    }

    impl Drop for FakeSudo {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn only_root_or_whoever_allows_sudo_has_a_hand() {
        let has_hand = |install| Hand::new(System::Debian, install).is_some();
        assert!(!has_hand(Install::Never));
        assert_eq!(has_hand(Install::IfRoot), is_root());
        assert!(has_hand(Install::WithSudo));
        assert!(Hand::new(System::Unknown, Install::WithSudo).is_none());
    }

    #[test]
    fn a_sudo_that_is_not_there_is_named() {
        let hand = Hand::through("/nowhere/sudo".into(), false);
        let text = hand.check().unwrap_err().to_string();
        assert!(text.starts_with("\"/nowhere/sudo -n true\" cannot be run: "), "{text}");
    }
}
