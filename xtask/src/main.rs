//! The commands of the project, as `cargo xtask help` lists them.
//!
//! Exit code 0: all is well. 1: a check failed, and the last line says which and
//! how to repeat it. 2: the command line made no sense.

mod api;
mod arguments;
mod bare;
mod clusters;
mod markdown;
mod previous;
mod sbom;
mod steps;
mod supply;
mod tidy;
mod workspace;

use std::fmt;
use std::process::ExitCode;

use arguments::{Command, HELP};
use steps::Suite;

/// Why a command did not end well.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line made no sense.
    Usage(String),
    /// A check failed, or could not be made.
    Check(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(what) => write!(f, "{what}\n\n{HELP}"),
            Failure::Check(what) => writeln!(f, "{what}"),
        }
    }
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Check(_) => 1,
            Failure::Usage(_) => 2,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments::parse(&arguments).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("xtask: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    let root = workspace::root();
    match command {
        Command::Help => {
            print!("{HELP}");
            Ok(())
        }
        Command::Test { is_quick, may_install } => {
            steps::test(&root, Suite { is_quick, may_install, has_nextest: steps::has_nextest() })
        }
        Command::Upgrade => {
            let has_nextest = steps::has_nextest();
            steps::upgrade(&root, Suite { is_quick: false, may_install: false, has_nextest })
        }
        Command::Simulate(simulation) => steps::simulate(&root, &simulation),
        Command::Chaos(options) => steps::chaos(&root, &options),
        Command::Bare { with_nextest } => bare::check(&root, with_nextest),
        Command::Tidy => tidy::tidy(&root),
        Command::Supply => supply::check(&root),
        Command::Api => api::check(&root),
        Command::Sbom { target } => sbom::write(&root, target.as_deref()),
        Command::Readme => tidy::write_readme(&root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_and_a_failed_check_have_exit_codes_of_their_own() {
        assert_eq!(Failure::Check("x".into()).exit_code(), 1);
        assert_eq!(Failure::Usage("x".into()).exit_code(), 2);
    }

    #[test]
    fn a_wrong_command_line_is_answered_with_the_help() {
        let text = arguments::parse(&["tets".into()]).unwrap_err().to_string();
        assert!(text.starts_with("unknown command \"tets\"\n\nUsage: cargo xtask"), "{text}");
    }
}
