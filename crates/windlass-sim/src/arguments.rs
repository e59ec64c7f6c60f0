//! What the command line asks for.

use std::time::Duration;

/// How the program is called.
pub(crate) const HELP: &str = "\
Simulates whole Windlass clusters in virtual time, with faults drawn from a seed.

usage:
  windlass-sim run --seeds N [--first-seed S]     simulate N seeds
  windlass-sim run --seconds N [--first-seed S]   simulate as many as fit in N seconds
  windlass-sim bugs [--seeds N]                   show that every planted bug is caught,
                                                  within N seeds (default 10000)
  windlass-sim replay SEED                        simulate one seed and tell everything

Without --first-seed the seeds begin at a number taken from the clock.
";

/// The seeds that each planted bug is given if nothing is said.
const BUG_SEEDS: u64 = 10_000;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Simulate seeds.
    Run {
        /// How many.
        extent: Extent,
        /// The first one, if it was said.
        first_seed: Option<u64>,
    },
    /// Show that every planted bug is caught.
    Bugs {
        /// The most seeds for each.
        seeds: u64,
    },
    /// Simulate one seed and tell everything.
    Replay {
        /// The seed.
        seed: u64,
    },
    /// Say how the program is called.
    Help,
}

/// How much to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// This many seeds.
    Seeds(u64),
    /// Seeds for this long.
    Time(Duration),
}

/// Reads the arguments after the program's name. The error names the culprit.
pub(crate) fn parse(arguments: &[String]) -> Result<Command, String> {
    let Some((command, rest)) = arguments.split_first() else {
        return Err("no command".to_owned());
    };
    match command.as_str() {
        "run" => parse_run(rest),
        "bugs" => {
            let [seeds] = options(rest, ["--seeds"])?;
            Ok(Command::Bugs { seeds: seeds.unwrap_or(BUG_SEEDS) })
        }
        "replay" => match rest {
            [seed] => Ok(Command::Replay { seed: number("replay", Some(seed))? }),
            _ => Err("replay needs one seed".to_owned()),
        },
        "help" | "--help" | "-h" => Ok(Command::Help),
        unknown => Err(format!("unknown command {unknown:?}")),
    }
}

fn parse_run(rest: &[String]) -> Result<Command, String> {
    let [seeds, seconds, first_seed] = options(rest, ["--seeds", "--seconds", "--first-seed"])?;
    let extent = match (seeds, seconds) {
        (Some(seeds), None) => Extent::Seeds(seeds),
        (None, Some(seconds)) => Extent::Time(Duration::from_secs(seconds)),
        (None, None) => return Err("run needs --seeds or --seconds".to_owned()),
        (Some(_), Some(_)) => {
            return Err("run takes --seeds or --seconds, not both".to_owned());
        }
    };
    Ok(Command::Run { extent, first_seed })
}

/// The numbers behind these options, each of which may be there once.
fn options<const N: usize>(rest: &[String], names: [&str; N]) -> Result<[Option<u64>; N], String> {
    let mut numbers = [None; N];
    let mut rest = rest.iter();
    while let Some(option) = rest.next() {
        let Some(place) = names.iter().position(|name| name == option) else {
            return Err(format!("unknown option {option:?}"));
        };
        if numbers[place].is_some() {
            return Err(format!("{option} is there twice"));
        }
        numbers[place] = Some(number(option, rest.next())?);
    }
    Ok(numbers)
}

fn number(what: &str, text: Option<&String>) -> Result<u64, String> {
    let Some(text) = text else {
        return Err(format!("{what} needs a number"));
    };
    text.parse().map_err(|_| format!("{what} needs a number, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&arguments)
    }

    #[test]
    fn every_command_is_understood() {
        let run = |extent, first_seed| Ok(Command::Run { extent, first_seed });
        assert_eq!(parsed("run --seeds 10"), run(Extent::Seeds(10), None));
        let replay = "run --first-seed 18446744073709551615 --seeds 1";
        assert_eq!(parsed(replay), run(Extent::Seeds(1), Some(u64::MAX)));
        let minute = Extent::Time(Duration::from_secs(60));
        assert_eq!(parsed("run --seconds 60"), run(minute, None));
        assert_eq!(parsed("bugs"), Ok(Command::Bugs { seeds: BUG_SEEDS }));
        assert_eq!(parsed("bugs --seeds 7"), Ok(Command::Bugs { seeds: 7 }));
        assert_eq!(parsed("replay 42"), Ok(Command::Replay { seed: 42 }));
        assert_eq!(parsed("help"), Ok(Command::Help));
    }

    #[test]
    fn a_misuse_is_refused_with_the_culprit() {
        for (line, error) in [
            ("", "no command"),
            ("walk", "unknown command \"walk\""),
            ("run", "run needs --seeds or --seconds"),
            ("run --seeds 1 --seconds 1", "run takes --seeds or --seconds, not both"),
            ("run --seeds", "--seeds needs a number"),
            ("run --seeds many", "--seeds needs a number, not \"many\""),
            ("run --seeds 1 --seeds 2", "--seeds is there twice"),
            ("bugs --first-seed 1", "unknown option \"--first-seed\""),
            ("replay", "replay needs one seed"),
        ] {
            assert_eq!(parsed(line), Err(error.to_owned()), "{line}");
        }
    }
}
