//! What a command line asks for.
//!
//! Parsed by hand: a few commands with few options do not justify a dependency that everyone
//! compiles before the first test.

use crate::Failure;

/// What `cargo xtask help` prints, and what follows a command line that makes no
/// sense.
pub(crate) const HELP: &str = "\
Usage: cargo xtask <command>

Commands:
  test [--quick] [--install]
                     everything a change must pass: format, lints, tests, doc tests,
                     examples, docs, tidy, supply chain, the long tests, a rolling upgrade,
                     4,000 seeds simulated and the planted bugs; --quick leaves the last four out;
                     --install installs PostgreSQL through sudo if none is found, as
                     root does without it
  upgrade            build the version before (xtask/previous) and try it beside this one
  simulate --seeds N [--first-seed S]
                     simulate N seeds, from S on (default: windlass-sim's own choice)
  simulate --seconds N
                     simulate as many seeds as fit in N seconds
  simulate --bugs [--seeds N]
                     show that the simulation catches every planted bug
  chaos [options]    run workers while they are killed and frozen, the database crashes and
                     connections are cut, and check an independent ledger; 4 minutes;
                     `chaos --help` lists the options
  bare [--nextest]   run both commands of the README on a bare Debian in target/bare; needs root,
                     debootstrap and an hour; --nextest adds the machine's cargo-nextest to it
  tidy               check what no compiler does: spaces, error pages, links, the README's
                     program, lints of each crate
  supply             check the dependencies against deny.toml: bans, licences, sources; installs
                     cargo-deny into target/tools if it is not there
  api                try a server with tokens with all that Schemathesis can draw from its OpenAPI
                     document; needs Python, and installs Schemathesis into target/tools
  sbom [--target T]  write what the binary is made of to target/sbom/windlass.cdx.json
  readme             copy crates/windlass/examples/readme.rs into README.md
  help               print this

Exit codes: 0 all is well, 1 a check failed, 2 the command line made no sense.
";

/// A command of this program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print [`HELP`].
    Help,
    /// Run everything a change must pass.
    Test {
        /// Whether the simulation is left out.
        is_quick: bool,
        /// Whether PostgreSQL may be installed through sudo.
        may_install: bool,
    },
    /// Try the version before beside this one.
    Upgrade,
    /// Run the simulation.
    Simulate(Simulation),
    /// Run the chaos test with these options.
    Chaos(Vec<String>),
    /// Run the commands of the README on a bare system.
    Bare {
        /// Whether the system has cargo-nextest.
        with_nextest: bool,
    },
    /// Check the texts of the workspace.
    Tidy,
    /// Check the dependencies.
    Supply,
    /// Try a server with what can be drawn from its document.
    Api,
    /// Write what the binary is made of.
    Sbom {
        /// The target that the binary is for; this machine if not said.
        target: Option<String>,
    },
    /// Copy the example into the README.
    Readme,
}

/// What to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Simulation {
    /// So many seeds.
    Seeds {
        /// How many.
        count: u64,
        /// The first of them.
        first: Option<u64>,
    },
    /// As many seeds as fit in a time.
    Seconds(u64),
    /// The planted bugs, which must all be caught.
    Bugs {
        /// How many seeds each bug may survive.
        seeds: Option<u64>,
    },
}

impl Simulation {
    /// The arguments of `windlass-sim` for it.
    pub(crate) fn arguments(self) -> Vec<String> {
        let (verb, options) = match self {
            Simulation::Seeds { count, first } => {
                ("run", [Some(("--seeds", count)), first.map(|seed| ("--first-seed", seed))])
            }
            Simulation::Seconds(seconds) => ("run", [Some(("--seconds", seconds)), None]),
            Simulation::Bugs { seeds } => ("bugs", [seeds.map(|count| ("--seeds", count)), None]),
        };
        let mut arguments = vec![verb.to_owned()];
        for (name, number) in options.into_iter().flatten() {
            arguments.extend([name.to_owned(), number.to_string()]);
        }
        arguments
    }
}

/// Reads the arguments behind `cargo xtask`.
pub(crate) fn parse(arguments: &[String]) -> Result<Command, Failure> {
    let Some((command, options)) = arguments.split_first() else {
        return Err(Failure::Usage("no command was given".into()));
    };
    match command.as_str() {
        "test" => parse_test(options),
        "simulate" => parse_simulate(options).map(Command::Simulate),
        "upgrade" => without_options(command, options, Command::Upgrade),
        "chaos" => Ok(Command::Chaos(options.to_vec())),
        "bare" => parse_bare(options),
        "tidy" => without_options(command, options, Command::Tidy),
        "supply" => without_options(command, options, Command::Supply),
        "api" => without_options(command, options, Command::Api),
        "sbom" => parse_sbom(options),
        "readme" => without_options(command, options, Command::Readme),
        "help" | "--help" | "-h" => Ok(Command::Help),
        unknown => Err(Failure::Usage(format!("unknown command {unknown:?}"))),
    }
}

fn without_options(name: &str, options: &[String], command: Command) -> Result<Command, Failure> {
    match options {
        [] => Ok(command),
        [first, ..] => Err(unknown_option(name, first)),
    }
}

fn parse_test(options: &[String]) -> Result<Command, Failure> {
    let (mut is_quick, mut may_install) = (false, false);
    for option in options {
        match option.as_str() {
            "--quick" => is_quick = true,
            "--install" => may_install = true,
            unknown => return Err(unknown_option("test", unknown)),
        }
    }
    Ok(Command::Test { is_quick, may_install })
}

fn parse_bare(options: &[String]) -> Result<Command, Failure> {
    match options {
        [] => Ok(Command::Bare { with_nextest: false }),
        [option] if option == "--nextest" => Ok(Command::Bare { with_nextest: true }),
        [first, second, ..] if first == "--nextest" => Err(unknown_option("bare", second)),
        [first, ..] => Err(unknown_option("bare", first)),
    }
}

fn parse_sbom(options: &[String]) -> Result<Command, Failure> {
    match options {
        [] => Ok(Command::Sbom { target: None }),
        [option, target] if option == "--target" => {
            Ok(Command::Sbom { target: Some(target.clone()) })
        }
        [option] if option == "--target" => Err(Failure::Usage("--target needs a target".into())),
        [option, third] | [option, _, third, ..] => {
            Err(unknown_option("sbom", if option == "--target" { third } else { option }))
        }
        [option] => Err(unknown_option("sbom", option)),
    }
}

fn parse_simulate(options: &[String]) -> Result<Simulation, Failure> {
    let (mut bugs, mut seeds, mut first, mut seconds) = (false, None, None, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--bugs" => bugs = true,
            "--seeds" => seeds = Some(number(option, options.next())?),
            "--first-seed" => first = Some(number(option, options.next())?),
            "--seconds" => seconds = Some(number(option, options.next())?),
            unknown => return Err(unknown_option("simulate", unknown)),
        }
    }
    match (bugs, seeds, first, seconds) {
        (true, seeds, None, None) => Ok(Simulation::Bugs { seeds }),
        (false, Some(count), first, None) => Ok(Simulation::Seeds { count, first }),
        (false, None, None, Some(seconds)) => Ok(Simulation::Seconds(seconds)),
        (false, None, None, None) => {
            Err(Failure::Usage("simulate needs --seeds, --seconds or --bugs".into()))
        }
        (true, _, _, _) => Err(Failure::Usage("simulate --bugs goes with --seeds only".into())),
        (false, None, Some(_), None) => {
            Err(Failure::Usage("simulate --first-seed goes with --seeds only".into()))
        }
        (false, _, _, Some(_)) => {
            Err(Failure::Usage("simulate --seconds goes with no other option".into()))
        }
    }
}

fn number(option: &str, value: Option<&String>) -> Result<u64, Failure> {
    let Some(value) = value else {
        return Err(Failure::Usage(format!("{option} needs a number")));
    };
    value.parse().map_err(|_| Failure::Usage(format!("{option} needs a number, not {value:?}")))
}

fn unknown_option(command: &str, option: &str) -> Failure {
    Failure::Usage(format!("{command} has no option {option:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, Failure> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&arguments)
    }

    fn simulator_line(line: &str) -> String {
        match read(line).unwrap() {
            Command::Simulate(simulation) => simulation.arguments().join(" "),
            other @ (Command::Help
            | Command::Test { .. }
            | Command::Upgrade
            | Command::Chaos(_)
            | Command::Bare { .. }
            | Command::Tidy
            | Command::Supply
            | Command::Api
            | Command::Sbom { .. }
            | Command::Readme) => {
                panic!("{other:?}")
            }
        }
    }

    #[test]
    fn each_command_is_read() {
        let test = |is_quick, may_install| Ok(Command::Test { is_quick, may_install });
        assert_eq!(read("test"), test(false, false));
        assert_eq!(read("test --quick"), test(true, false));
        assert_eq!(read("test --install"), test(false, true));
        assert_eq!(read("test --install --quick"), test(true, true));
        assert_eq!(read("upgrade"), Ok(Command::Upgrade));
        let options = vec!["--tasks".to_owned(), "9".to_owned()];
        assert_eq!(read("chaos --tasks 9"), Ok(Command::Chaos(options)));
        assert_eq!(read("bare"), Ok(Command::Bare { with_nextest: false }));
        assert_eq!(read("bare --nextest"), Ok(Command::Bare { with_nextest: true }));
        assert_eq!(read("tidy"), Ok(Command::Tidy));
        assert_eq!(read("readme"), Ok(Command::Readme));
        assert_eq!(read("supply"), Ok(Command::Supply));
        assert_eq!(read("api"), Ok(Command::Api));
        assert_eq!(read("sbom"), Ok(Command::Sbom { target: None }));
        let target = Some("x86_64-unknown-linux-musl".to_owned());
        assert_eq!(read("sbom --target x86_64-unknown-linux-musl"), Ok(Command::Sbom { target }));
        for line in ["help", "--help", "-h"] {
            assert_eq!(read(line), Ok(Command::Help));
        }
    }

    #[test]
    fn a_simulation_is_passed_on_in_the_words_of_the_simulator() {
        assert_eq!(simulator_line("simulate --seeds 10"), "run --seeds 10");
        let replay = "simulate --first-seed 18446744073709551615 --seeds 1";
        assert_eq!(simulator_line(replay), "run --seeds 1 --first-seed 18446744073709551615");
        assert_eq!(simulator_line("simulate --seconds 60"), "run --seconds 60");
        assert_eq!(simulator_line("simulate --bugs"), "bugs");
        assert_eq!(simulator_line("simulate --bugs --seeds 7"), "bugs --seeds 7");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_culprit() {
        for (line, what) in [
            ("", "no command was given"),
            ("tests", "unknown command \"tests\""),
            ("test --fast", "test has no option \"--fast\""),
            ("tidy now", "tidy has no option \"now\""),
            ("bare --fast", "bare has no option \"--fast\""),
            ("bare --nextest now", "bare has no option \"now\""),
            ("sbom --target", "--target needs a target"),
            ("sbom all", "sbom has no option \"all\""),
            ("sbom --target a b", "sbom has no option \"b\""),
            ("simulate", "simulate needs --seeds, --seconds or --bugs"),
            ("simulate --seeds", "--seeds needs a number"),
            ("simulate --seeds many", "--seeds needs a number, not \"many\""),
            ("simulate --seeds -1", "--seeds needs a number, not \"-1\""),
            ("simulate --first-seed 4", "simulate --first-seed goes with --seeds only"),
            ("simulate --bugs --first-seed 4", "simulate --bugs goes with --seeds only"),
            ("simulate --bugs --seconds 4", "simulate --bugs goes with --seeds only"),
            ("simulate --seconds 4 --seeds 4", "simulate --seconds goes with no other option"),
        ] {
            assert_eq!(read(line), Err(Failure::Usage(what.into())), "{line}");
        }
    }
}
