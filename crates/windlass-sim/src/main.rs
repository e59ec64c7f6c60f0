//! Simulates whole Windlass clusters: a store, competing worker processes and
//! clients on virtual time, with faults that are drawn from a seed.
//!
//! The same seed gives the same histories to the last event. What is simulated is
//! the engine that ships; only time, chance and the way to the store are replaced.
//! After a while the faults stop, everything must come to its end, and every
//! promise is checked against what handlers, clients and the store's own gate
//! wrote down.
//!
//! A simulation that finds nothing proves little by itself, so `bugs` plants the
//! mistakes that engines of this kind have shipped and shows that each is caught.
//!
//! What is not simulated: PostgreSQL. Its store is held to the same contract by
//! tests of its own.

mod arguments;
mod checks;
mod clients;
mod cluster;
mod commands;
mod dice;
mod duties;
mod faults;
mod functions;
mod handlers;
mod hints;
mod input;
mod journal;
mod lanes;
mod leaders;
mod ledger;
mod operators;
mod panics;
mod scenario;
mod schedules;
mod seed;
mod store;
#[cfg(test)]
mod tests;
mod truth;
mod undos;
mod world;

use std::process::ExitCode;

use arguments::Command;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments::parse(&arguments) {
        Ok(Command::Run { extent, first_seed }) => commands::run(extent, first_seed),
        Ok(Command::Bugs { seeds }) => commands::bugs(seeds),
        Ok(Command::Replay { seed }) => commands::replay(seed),
        Ok(Command::Help) => {
            print!("{}", arguments::HELP);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprint!("windlass-sim: {error}\n\n{}", arguments::HELP);
            ExitCode::from(2)
        }
    }
}
